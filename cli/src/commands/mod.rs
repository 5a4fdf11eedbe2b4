//! The commands but `exec`, one file each.

pub(crate) mod acquire;
pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod extend;
pub(crate) mod inspect;
pub(crate) mod ls;
pub(crate) mod pages;
pub(crate) mod release;
