//! Timestamps: {1 seconds, 2 nanoseconds} in protobuf, RFC 3339 in JSON. Years 1 to 9999, as in Go's JSON.

use super::wire::{WireType, put_number, single, varint};
use crate::Error;
use std::{fmt::Write, ops::Range};

/// Midnight of the first day of year 1, which is Go's zero time.
const ZERO: i64 = -62_135_596_800;
/// The first second of year 10000.
const END: i64 = 253_402_300_800;

/// A timestamp in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    seconds: i64,
    nanos: u32,
}

/// Reads the time with this span. Returns none for the zero time.
pub(crate) fn read(bytes: &[u8], at: Range<usize>) -> Result<Option<Time>, Error> {
    if at.is_empty() {
        return Ok(None);
    }
    let part = |number, name| {
        let record = single(bytes, at.clone(), number, WireType::Varint, name)?;
        let value = record.map(|record| varint(bytes, record.value.start, record.value.end)).transpose()?;
        Ok::<_, Error>(value.map_or(0, |(value, _)| value))
    };
    let (seconds, nanos) = (part(1, "seconds")? as i64, part(2, "nanos")?);
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    match nanos {
        Some(0) if seconds == ZERO => Ok(None),
        Some(nanos) if (ZERO..END).contains(&seconds) => Ok(Some(Time { seconds, nanos })),
        _ => Err(Error::malformed(at.start, "a time outside the years 1 to 9999")),
    }
}

impl Time {
    /// Formats the time as in JSON, with or without microseconds.
    pub(crate) fn to_json_text(self, micro: bool) -> String {
        let days = self.seconds.div_euclid(86_400);
        let second = self.seconds.rem_euclid(86_400);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        if micro {
            // Writing to a string cannot fail.
            let _ = write!(text, ".{:06}", self.nanos / 1000);
        }
        text.push('Z');
        text
    }

    /// Encodes the message without its length.
    pub(crate) fn encode(self, micro: bool, out: &mut Vec<u8>) {
        put_number(1, self.seconds as u64, out);
        put_number(2, if micro { u64::from(self.nanos / 1000 * 1000) } else { 0 }, out);
    }

    /// Parses RFC 3339 with any offset and fraction.
    pub(crate) fn parse(text: &str) -> Option<Time> {
        let bytes = text.as_bytes();
        let number = |at: Range<usize>| -> Option<i64> {
            let digits = text.get(at)?;
            if digits.bytes().all(|digit| digit.is_ascii_digit()) { digits.parse().ok() } else { None }
        };
        let is = |at: usize, wanted: &[u8]| bytes.get(at).is_some_and(|byte| wanted.contains(byte));
        if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt") && is(13, b":") && is(16, b":")) {
            return None;
        }
        let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
        let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
        let days = days(year, month, day);
        if hour > 23 || minute > 59 || second > 59 || civil(days) != (year, month, day) {
            return None;
        }
        let mut at = 19;
        let mut nanos = 0;
        if is(at, b".") {
            let fraction = bytes.get(20..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if fraction == 0 {
                return None;
            }
            let digits = text.get(20..20 + fraction.min(9))?;
            nanos = digits.parse::<u32>().ok()? * 10u32.pow(9 - digits.len() as u32);
            at = 20 + fraction;
        }
        let offset = match bytes.get(at)? {
            b'Z' | b'z' if bytes.len() == at + 1 => 0,
            sign @ (b'+' | b'-') if bytes.len() == at + 6 && is(at + 3, b":") => {
                let offset = number(at + 1..at + 3)? * 3600 + number(at + 4..at + 6)? * 60;
                if *sign == b'-' { -offset } else { offset }
            }
            _ => return None,
        };
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset;
        (ZERO..END).contains(&seconds).then_some(Time { seconds, nanos })
    }
}

/// Converts a date to days since 1970 in the proleptic Gregorian calendar, with eras of 400 years that begin in March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_were_spelt() {
        for text in ["1970-01-01T00:00:00Z", "2024-02-29T23:59:59Z", "0001-01-01T00:00:01Z", "9999-12-31T23:59:59Z"] {
            assert_eq!(Time::parse(text).unwrap().to_json_text(false), text);
        }
        assert_eq!(
            Time::parse("2024-05-06T07:08:09.123456Z").unwrap().to_json_text(true),
            "2024-05-06T07:08:09.123456Z"
        );
        assert_eq!(
            Time::parse("2024-05-06T07:08:09.5+02:00").unwrap().to_json_text(true),
            "2024-05-06T05:08:09.500000Z"
        );
        for bad in [
            "",
            "2024-02-30T00:00:00Z",
            "2024-05-06",
            "2024-05-06T07:08:09",
            "2024-05-06T24:00:00Z",
            "ü024-05-06T07:08:09Z",
        ] {
            assert_eq!(Time::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_day_of_the_calendar_is_itself() {
        for day in (-719_162..2_932_896).step_by(17) {
            let (year, month, of_month) = civil(day);
            assert_eq!(days(year, month, of_month), day);
        }
    }
}
