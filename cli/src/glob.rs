//! Patterns of lock names, as Redis has them: `*`, `?`, `[a-z]`, `[^a]` and `\`.

/// Whether a name matches a pattern.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // The last star, and the part of the name that it took: only it must be tried again.
    let (mut at, mut read, mut star) = (0, 0, None);
    loop {
        let step = match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, read));
                at += 1;
                continue;
            }
            None if read == name.len() => return true,
            None => None,
            Some(_) => name.get(read).and_then(|character| one(&pattern[at..], *character)),
        };
        match (step, star) {
            (Some(length), _) => (at, read) = (at + length, read + 1),
            (None, Some((after, taken))) if taken < name.len() => {
                star = Some((after, taken + 1));
                (at, read) = (after, taken + 1);
            }
            (None, _) => return false,
        }
    }
}

/// The length of the pattern's first element, if it matches the character.
fn one(pattern: &[char], character: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['\\', escaped, ..] => (*escaped == character).then_some(2),
        ['[', set @ ..] => {
            let end = set.iter().skip(1).position(|one| *one == ']')? + 1;
            let (negated, set) = if set[0] == '^' { (true, &set[1..end]) } else { (false, &set[..end]) };
            (in_set(set, character) != negated).then_some(end + 2)
        }
        [literal, ..] => (*literal == character).then_some(1),
        [] => None,
    }
}

fn in_set(set: &[char], character: char) -> bool {
    match set {
        [first, '-', last, rest @ ..] => (first..=last).contains(&&character) || in_set(rest, character),
        [one, rest @ ..] => *one == character || in_set(rest, character),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_those_of_redis() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "order:42", true),
            ("order:*", "order:42", true),
            ("order:*", "border:42", false),
            ("*:4?", "order:42", true),
            ("*:4?", "order:4", false),
            ("*a*b*c", "xaxbxbxc", true),
            ("*a*b*c", "xaxbxbx", false),
            ("order:[0-4]2", "order:42", true),
            ("order:[^0-4]2", "order:42", false),
            ("order:[^5]2", "order:42", true),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            ("report", "report", true),
            ("report", "reports", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
