//! Groups of lock names, for metrics: a series for each name would be too many.

use std::collections::BTreeMap;

/// How many groups the metrics have. The locks of others are in the group `other`.
const MOST_GROUPS: usize = 100;
const OTHER: &str = "other";
/// The shortest run of hexadecimal digits that counts as a variable part.
const LEAST_HEX: usize = 8;
/// The lengths of the parts of a UUID.
const UUID: [usize; 5] = [8, 4, 4, 4, 12];

/// The name with its variable parts collapsed: `order:42` is in the group `order:*`. Variable are UUIDs, runs of eight
/// or more hexadecimal digits, and runs of digits.
pub(super) fn group(name: &str) -> String {
    let mut group = String::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|character: char| !character.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let length = if word == 0 { 0 } else { uuid(rest).unwrap_or(word) };
        if length == 0 {
            group.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (part, after) = rest.split_at(length);
        if part.contains('-') || (part.len() >= LEAST_HEX && part.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            group.push('*');
        } else {
            collapse_digits(part, &mut group);
        }
        rest = after;
    }
    group
}

/// The length of the UUID at the beginning of a text.
fn uuid(text: &str) -> Option<usize> {
    let mut parts = text.splitn(UUID.len(), '-');
    let all = UUID.iter().all(|length| {
        parts
            .next()
            .and_then(|part| part.get(..*length))
            .is_some_and(|part| part.bytes().all(|b| b.is_ascii_hexdigit()))
    });
    let length = UUID.iter().sum::<usize>() + UUID.len() - 1;
    let ends = text.get(length..).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()));
    (all && ends && text[..length].matches('-').count() == UUID.len() - 1).then_some(length)
}

fn collapse_digits(word: &str, group: &mut String) {
    let mut in_digits = false;
    for character in word.chars() {
        if !character.is_ascii_digit() {
            group.push(character);
        } else if !in_digits {
            group.push('*');
        }
        in_digits = character.is_ascii_digit();
    }
}

/// The values of each group, at most [`MOST_GROUPS`], and those of the others together.
pub(super) fn grouped<T: Default>(
    names: impl Iterator<Item = (String, T)>,
    add: impl Fn(&mut T, T),
) -> BTreeMap<String, T> {
    let mut groups = BTreeMap::<String, T>::new();
    for (group, value) in names {
        let known = groups.contains_key(&group) || groups.len() < MOST_GROUPS;
        add(groups.entry(if known { group } else { OTHER.to_owned() }).or_default(), value);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_parts_are_collapsed() {
        for (name, expected) in [
            ("order:42", "order:*"),
            ("order:42:item:7", "order:*:item:*"),
            ("report", "report"),
            ("v2-report", "v*-report"),
            ("user/deadbeef01", "user/*"),
            ("face", "face"),
            ("job:0f6b7d0e-9f3c-4b1e-8a53-6f1d2c3b4a59:run", "job:*:run"),
            ("0f6b7d0e-9f3c-4b1e-8a53-6f1d2c3b4a59x", "*-*f*c-*b*e-*a*-*f*d*c*b*a*x"),
            ("größe:ß1", "größe:ß*"),
            ("", ""),
        ] {
            assert_eq!(group(name), expected, "{name}");
        }
    }

    #[test]
    fn there_are_only_so_many_groups() {
        let letters = |number: usize| String::from_utf8(vec![b'g' + (number / 16) as u8, b'g' + (number % 16) as u8]);
        let names = (0..250).map(|number| (letters(number).expect("ASCII"), 1));
        let groups = grouped(names, |sum, one| *sum += one);
        assert_eq!(groups.len(), MOST_GROUPS + 1);
        assert_eq!(groups[OTHER], 150);
    }
}
