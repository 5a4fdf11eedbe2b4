//! Measures locks on the user's own servers: `measure` makes the calls, `verdict` says what the times mean.

mod measure;
mod names;
mod times;
mod verdict;

pub(crate) use self::{
    measure::{Measured, Plan, measure},
    names::Names,
    times::{Row, What},
    verdict::{Remark, millis, verdict},
};
