//! How a node's keys are divided into parts. A server has all keys; a cluster has the keys of a slot on one server. So
//! a request to a cluster names keys of one slot only, and each slot has a marker of its own, which says whether it may
//! vote.

use crc::{CRC_16_XMODEM, Crc};
use once_cell::race::OnceBox;

use crate::protocol::calls::MARKER;

/// The number of slots of a cluster.
pub(crate) const SLOTS: usize = 16_384;

/// The parts of a node, each on one server at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parts {
    /// All keys are on one server.
    #[default]
    One,
    /// A part for each slot.
    Slots,
}

impl Parts {
    /// The part that has a key. A request may name keys of one part only.
    pub(crate) fn of(self, key: &str) -> u16 {
        match self {
            Self::One => 0,
            Self::Slots => slot(key),
        }
    }

    /// The marker of the part that has `key`.
    pub(crate) fn marker(self, key: &str) -> String {
        match self {
            Self::One => MARKER.to_owned(),
            Self::Slots => marker(slot(key)),
        }
    }

    /// The markers of all parts.
    pub(crate) fn markers(self) -> Vec<String> {
        match self {
            Self::One => vec![MARKER.to_owned()],
            Self::Slots => (0..SLOTS).map(|slot| marker(slot as u16)).collect(),
        }
    }

    /// Whether there are several.
    pub(crate) fn are_several(self) -> bool {
        self == Self::Slots
    }
}

/// The slot of a key. If it has a hash tag, the text between the first `{` and the next `}`, and the tag is not empty,
/// only the tag counts.
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
