//! How the keys of a node are divided among its servers. A single server has all keys; on a cluster, one server has the
//! keys of a hash slot. So a request to a cluster names keys of one slot only, and each slot has a marker of its own,
//! which says whether it may vote.

use crc::{CRC_16_XMODEM, Crc};
use once_cell::race::OnceBox;

use crate::protocol::calls::MARKER;

/// The number of hash slots of a cluster.
pub(crate) const SLOTS: usize = 16_384;

/// How the keys of a node are divided among its servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharding {
    /// Not at all: one server has all keys, as if they were in one slot.
    #[default]
    None,
    /// By hash slot: one server at a time has the keys of a slot.
    HashSlots,
}

impl Sharding {
    /// The slot of a key. A request may name keys of one slot only.
    pub(crate) fn slot_of(self, key: &str) -> u16 {
        match self {
            Self::None => 0,
            Self::HashSlots => slot(key),
        }
    }

    /// The marker of the slot that has `key`.
    pub(crate) fn marker(self, key: &str) -> String {
        match self {
            Self::None => MARKER.to_owned(),
            Self::HashSlots => marker(slot(key)),
        }
    }

    /// The markers of all slots.
    pub(crate) fn markers(self) -> Vec<String> {
        match self {
            Self::None => vec![MARKER.to_owned()],
            Self::HashSlots => (0..SLOTS).map(|slot| marker(slot as u16)).collect(),
        }
    }

    /// Whether the node has several slots.
    pub(crate) fn has_slots(self) -> bool {
        self == Self::HashSlots
    }
}

/// The hash slot of a key. If it has a hash tag, the text between the first `{` and the next `}`, and the tag is not
/// empty, only the tag counts.
pub(crate) fn slot(key: &str) -> u16 {
    const XMODEM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    XMODEM.checksum(hashed.as_bytes()) % SLOTS as u16
}

/// The marker of a slot. Its tag is the smallest number in that slot.
fn marker(slot: u16) -> String {
    static TAGS: OnceBox<Vec<u32>> = OnceBox::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![u32::MAX; SLOTS];
        let (mut missing, mut number) = (SLOTS, 0);
        while missing > 0 {
            let tag = &mut tags[usize::from(self::slot(&number.to_string()))];
            if *tag == u32::MAX {
                *tag = number;
                missing -= 1;
            }
            number += 1;
        }
        Box::new(tags)
    });
    format!("{MARKER}:{{{}}}", tags[usize::from(slot)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // From the specification, and from CLUSTER KEYSLOT.
        assert_eq!(slot("123456789"), 0x31c3 % SLOTS as u16);
        assert_eq!(slot("somekey"), 11_058);
        assert_eq!(slot("foo{hash_tag}"), slot("bar{hash_tag}"));
        assert_eq!(slot("foo{}{bar}"), 8_363);
        assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
    }

    #[test]
    fn each_slot_has_a_marker_of_its_own() {
        for number in [0, 1, 7_777, 16_383] {
            assert_eq!(slot(&marker(number)), number);
        }
    }
}
