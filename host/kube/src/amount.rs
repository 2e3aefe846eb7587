//! Amounts as Kubernetes and Go write them: quantities of bytes (`64Mi`) and durations (`1m30s`).
//!
//! Durations are parsed here and not by kube's `Duration`, which accepts an empty text and panics at what its sum cannot hold,
//! such as `99999999999999999999h` in an annotation.

use std::time::Duration;

/// The digits after the point of a quantity that count, as many as fit.
const MAX_FRACTION: usize = 18;

/// Parses a Kubernetes quantity of memory to whole bytes, rounded up as in Kubernetes: a decimal number, and none of its suffixes or one
/// of `k`, `M`, `G`, `Ki`, `Mi` and `Gi`. Smaller and larger ones, and exponents, are not accepted.
#[must_use]
pub fn quantity(text: &str) -> Option<u64> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(at);
    let unit: u64 = match suffix {
        "" => 1,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    u64::try_from(scaled(number, unit, rounded_up)?).ok()
}

/// Parses a Go duration: decimal numbers, each with a unit, such as `1m30s`, `1.5s` or `20ms`. Parts of a nanosecond are cut off, as in
/// Go. A sign is not accepted.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut nanoseconds: u128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(at);
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let unit: u64 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        nanoseconds = nanoseconds.checked_add(scaled(number, unit, as_in_go)?)?;
        rest = tail;
    }
    // Go's longest duration has 292 years.
    let nanoseconds = i64::try_from(nanoseconds).ok().filter(|_| !text.is_empty())?;
    Some(Duration::from_nanos(nanoseconds.unsigned_abs()))
}

/// Returns `number` times `unit`. A number consists of digits and at most one point, after which `fraction` counts.
fn scaled(number: &str, unit: u64, fraction: fn(&str, u64) -> Option<u128>) -> Option<u128> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && part.is_empty()) || part.contains('.') {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    u128::from(whole).checked_mul(unit.into())?.checked_add(fraction(part, unit)?)
}

fn rounded_up(digits: &str, unit: u64) -> Option<u128> {
    let digits = digits.get(..MAX_FRACTION).unwrap_or(digits);
    let scale = 10_u128.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let part = if digits.is_empty() { 0 } else { digits.parse::<u128>().ok()? };
    Some(part.checked_mul(unit.into())?.div_ceil(scale))
}

/// Cuts off what is less than one, in the floating point numbers of Go's `time.ParseDuration`. Digits that do not fit have no effect.
fn as_in_go(digits: &str, unit: u64) -> Option<u128> {
    const MAX: u64 = 1 << 63;
    let (mut part, mut scale) = (0_u64, 1.0);
    for digit in digits.bytes() {
        let next = if part > (MAX - 1) / 10 { u64::MAX } else { part * 10 + u64::from(digit - b'0') };
        if next > MAX {
            break;
        }
        (part, scale) = (next, scale * 10.0);
    }
    Some((part as f64 * (unit as f64 / scale)) as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for (text, bytes) in [
            ("64Mi", Some(64 << 20)),
            ("1.5Mi", Some(3 << 19)),
            ("0.5Gi", Some(512 << 20)),
            ("2M", Some(2_000_000)),
            ("1024Ki", Some(1 << 20)),
            ("1.5", Some(2)),
            ("0.0001", Some(1)),
            ("64MiB", None),
            ("64 Mi", None),
            ("-1Mi", None),
            ("1.2.3Mi", None),
            (".", None),
            ("64m", None),
            ("99999999999999999999", None),
            ("99999999999Gi", None),
        ] {
            assert_eq!(quantity(text), bytes, "{text:?}");
        }
    }

    /// The cases of Go's `TestParseDuration`, as far as they have no sign.
    #[test]
    fn durations_are_those_of_go() {
        let ns = |n| Some(Duration::from_nanos(n));
        for (text, expected) in [
            ("0", ns(0)),
            ("5s", ns(5_000_000_000)),
            ("1478s", ns(1_478_000_000_000)),
            ("5.6s", ns(5_600_000_000)),
            ("5.s", ns(5_000_000_000)),
            (".5s", ns(500_000_000)),
            ("100.00100s", ns(100_001_000_000)),
            ("10ns", ns(10)),
            ("11us", ns(11_000)),
            ("12µs", ns(12_000)),
            ("12μs", ns(12_000)),
            ("10.5s4m", ns(250_500_000_000)),
            ("1h2m3s4ms5us6ns", ns(3_723_004_005_006)),
            ("39h9m14.425s", ns(140_954_425_000_000)),
            ("9007199254740993ns", ns(9_007_199_254_740_993)),
            ("0.3333333333333333333h", ns(1_200_000_000_000)),
            ("0.100000000000000000000h", ns(360_000_000_000)),
            ("0.9223372036854775807h", ns(3_320_413_933_267)),
            ("0.830103483285477580700h", ns(2_988_372_539_827)),
            // Those of `time.ParseDuration` itself.
            ("0.5ns", ns(0)),
            ("1.999ns", ns(1)),
            ("0.9999999us", ns(999)),
            ("0.000000001999s", ns(1)),
            ("0.3s0.7ns", ns(300_000_000)),
            ("", None),
            ("3", None),
            ("s", None),
            (".", None),
            (".s", None),
            ("1.2.3s", None),
            ("1d", None),
            ("1h ", None),
            ("20 ms", None),
            ("-20ms", None),
            ("1h-1m", None),
            ("ä", None),
            ("99999999999999999999h", None),
            ("9999999999h", None),
            ("9223372036.854775807s", ns(9_223_372_036_854_775_807)),
            ("9223372036.854775808s", None),
        ] {
            assert_eq!(duration(text), expected, "{text:?}");
        }
    }
}
