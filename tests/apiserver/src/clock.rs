//! Timestamps as Kubernetes writes them: RFC 3339 in UTC with whole seconds. Ages as kubectl prints them.
//!
//! Pure arithmetic, no memory held. Timestamps are only displayed; nothing is ordered by them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The current time in the format of `metav1.Time`.
pub(crate) fn now() -> String {
    format(seconds_now())
}

/// The age of an RFC 3339 timestamp in kubectl's short form; `<unknown>` for an invalid one.
pub(crate) fn age(timestamp: Option<&str>) -> String {
    match timestamp.and_then(parse) {
        Some(then) => short(Duration::from_secs(seconds_now().saturating_sub(then))),
        None => "<unknown>".to_owned(),
    }
}

#[expect(clippy::disallowed_methods, reason = "an API server has a clock")]
fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// kubectl's `HumanDuration`, without its finest steps.
fn short(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => format!("{}m{}s", seconds / 60, seconds % 60),
        600..10_800 => format!("{}m", seconds / 60),
        10_800..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The civil date of a number of days since 1970, by Howard Hinnant's `civil_from_days`.
fn format(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The seconds since 1970 of `YYYY-MM-DDTHH:MM:SS…Z`.
fn parse(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if year < 1970 || !(1..=12).contains(&month) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let year_of_era = year % 400;
    let month_index = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_index + 2) / 5 + day.saturating_sub(1);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_back_as_it_was_written() {
        for seconds in [0, 951_827_696, 1_709_210_096, 4_102_444_799] {
            assert_eq!(parse(&format(seconds)), Some(seconds));
        }
        assert_eq!(format(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(parse("yesterday"), None);
    }

    #[test]
    fn ages_are_as_short_as_kubectl_prints_them() {
        for (seconds, text) in [(5, "5s"), (125, "2m5s"), (7200, "120m"), (90_000, "25h"), (400_000, "4d")] {
            assert_eq!(short(Duration::from_secs(seconds)), text);
        }
    }
}
