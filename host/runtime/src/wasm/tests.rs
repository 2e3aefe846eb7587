//! The limits that `wit/README.md` documents are those of the code.

use super::{evaluate, host_call, instance, paths, pool, state, trace, wasi};
use weir_spec::{Limits, MAX_MODULE};

fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[test]
fn the_documented_limits_are_those_of_the_code() {
    let text = include_str!("../../../../wit/README.md");
    let mi = |bytes: usize| bytes >> 20;
    let limits = Limits::default();
    for row in [
        format!("| module file | {} MiB |", mi(MAX_MODULE)),
        format!("of the configuration, {} MiB by default |", limits.memory.bytes() >> 20),
        format!("of the configuration, {} ms by default |", limits.time.duration().as_millis()),
        format!("| time for instantiation, `describe` and `configure` together | {} s |", instance::START.as_secs()),
        format!("| paths held by an instance | {} |", thousands(paths::HANDLES)),
        format!("or holds {} paths", thousands(paths::MANY)),
        format!("has filtered {} objects", thousands(usize::try_from(pool::OBJECTS).unwrap())),
        format!("| {}, with {} MiB in total |", state::STRING_SETS, mi(state::STRING_SETS_WEIGHT)),
        format!("| looked-up objects held during a call | {} |", thousands(evaluate::HITS)),
        format!("| selections held during a call | {} |", evaluate::SELECTIONS),
        format!("| one column over a selection | {} MiB |", mi(evaluate::COLUMN)),
        format!("in one host call or as a result | {} MiB |", mi(instance::HOSTCALL)),
        format!("| {}, of {} bytes each |", wasi::LINES, thousands(wasi::LINE)),
        format!("| error that `configure` returns | {} bytes |", thousands(instance::TEXT)),
        format!("has at most {} bytes |", host_call::LONG),
        format!("A trace has at most {} host calls.", trace::CALLS),
        format!("returns more than {} rows", host_call::ROWS),
        format!("| edited object | {} MiB, or its original size", mi(weir_kube::FILTER_EDITS.max_bytes)),
    ] {
        assert!(text.contains(&row), "wit/README.md has no {row:?}");
    }
}
