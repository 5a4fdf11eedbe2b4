//! Durations as timeout(1) reads them: `5`, `2.5s`, `10m`, `1h`, `2d`, and `ms` besides.

use std::time::Duration;

pub(crate) use redlock::rounded as show;

/// The units, and their lengths in seconds. The longest suffix first.
const UNITS: [(&str, f64); 5] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];

/// Reads a duration, for clap.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let (number, unit) =
        UNITS.iter().find_map(|(suffix, seconds)| Some((text.strip_suffix(suffix)?, *seconds))).unwrap_or((text, 1.0));
    let plain = number.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && number.chars().all(|character| character.is_ascii_digit() || character == '.');
    let seconds = number.parse::<f64>().ok().filter(|_| plain);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds * unit).ok());
    duration.ok_or_else(|| {
        "must be a number with ms, s, m, h or d, such as 500ms, 2.5s, 10m; without a unit it counts seconds".to_owned()
    })
}

/// The least and the longest pause between two looks at the servers.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(86_400);

/// Reads the pause between two looks, for clap.
pub(crate) fn pause(text: &str) -> Result<Duration, String> {
    let pause = parse(text)?;
    if (LEAST_PAUSE..=LONGEST_PAUSE).contains(&pause) { Ok(pause) } else { Err("must be from 100ms to 1d".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_timeout_reads_them() {
        for (text, millis) in [
            ("5", 5000),
            ("0", 0),
            ("2.5s", 2500),
            (".5", 500),
            ("250ms", 250),
            ("1.5ms", 1),
            ("10m", 600_000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
        ] {
            assert_eq!(parse(text).map(|duration| duration.as_millis()), Ok(millis), "{text}");
        }
        for text in
            ["", "s", "-1", "+1", "1e3", "inf", "nan", "5 s", "5w", "1.2.3", ".", "1m30s", "99999999999999999999d"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_with_two_units() {
        for (millis, text) in [
            (40, "0.0s"),
            (2540, "2.5s"),
            (59_900, "59s"),
            (133_000, "2m13s"),
            (3_900_000, "1h05m"),
            (266_400_000, "3d02h"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
    }
}
