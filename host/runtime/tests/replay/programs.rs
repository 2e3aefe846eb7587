//! Generated programs. They are pure functions of what they read, but otherwise arbitrary.

use guest::{Edit, Op, Program, Read, Select};

use super::cluster::{NODE, NODES, POOLS, SERVICES};
use super::rng::Rng;

const RESOURCES: &[&str] = &["services", "nodes", "nodepools.apps.openyurt.io"];
/// Paths without `[*]`.
const PLACES: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.labels.service",
    "metadata.labels['kubernetes.io/service-name']",
    "metadata.annotations['openyurt.io/topologyKeys']",
    "spec.type",
    "spec",
    "spec.nodeName",
    "spec.ports[0].port",
    "data.key-0",
    "status.nodes[0]",
];
/// Paths with `[*]`.
const ROWS: &[&str] = &[
    "endpoints[*].nodeName",
    "endpoints[*]",
    "subsets[*].addresses[*].nodeName",
    "subsets[*]",
    "spec.ports[*].nodePort",
    "spec.containers[*].env[*].value",
    "status.nodes[*]",
];
/// Paths at which edits are refused, on some or all objects.
const GUARDED: &[&str] = &["metadata.name", "metadata.labels.service", "spec.containers[*].image", "spec.type.a.b"];
const KEYS: &[&str] =
    &["service", "openyurt.io/topologyKeys", "apps.openyurt.io/nodepool", "nodeport.openyurt.io/listen"];

/// Returns the settings of a program.
pub(crate) fn program(rng: &mut Rng) -> String {
    let ops = (0..=rng.below(9)).map(|_| op(rng)).collect();
    serde_json::to_string(&Program { ops, ..Program::default() }).unwrap()
}

fn text(rng: &mut Rng, from: &[&str]) -> String {
    rng.pick(from).to_owned()
}

fn many(rng: &mut Rng) -> u64 {
    2 + rng.below(5) as u64
}

fn name(rng: &mut Rng) -> String {
    match rng.below(3) {
        0 => text(rng, SERVICES),
        1 => text(rng, POOLS),
        _ => NODE.to_owned(),
    }
}

fn op(rng: &mut Rng) -> Op {
    let target = rng.below(3);
    match rng.below(22) {
        0..=6 => Op::Read(target, read(rng)),
        7..=9 => Op::Edit(if rng.one_in(8) { target } else { 0 }, edit(rng)),
        10 => Op::Get(text(rng, RESOURCES), rng.one_in(2), name(rng)),
        11 | 12 => Op::Referent(text(rng, RESOURCES), if rng.one_in(3) { target } else { 0 }, text(rng, PLACES)),
        13 => {
            let selectors = ["", "apps.openyurt.io/nodepool=hangzhou", "apps.openyurt.io/nodepool"];
            // Seldom one that does not parse: it traps.
            let selector = if rng.one_in(12) { "a in".to_owned() } else { text(rng, &selectors) };
            Op::Find(text(rng, RESOURCES), rng.one_in(2), selector)
        }
        14 => Op::Select(match rng.below(4) {
            0 => Select::Count,
            1 => Select::At(rng.below(3) as u32),
            2 => Select::Column(text(rng, ROWS)),
            _ => Select::Memo(text(rng, ROWS)),
        }),
        15 => Op::Memo(1 + target, text(rng, ROWS)),
        16 | 17 => Op::Skip(many(rng), 1 + rng.below(3)),
        18 => Op::Hide(many(rng)),
        19 => match rng.below(4) {
            0 => Op::Fail(many(rng) * 2),
            1 => Op::Trap(many(rng) * 2),
            2 => Op::Log(many(rng)),
            _ => Op::LogOnce,
        },
        20 if rng.one_in(3) => Op::Addresses,
        _ => Op::Read(0, Read::Text(text(rng, PLACES))),
    }
}

fn read(rng: &mut Rng) -> Read {
    match rng.below(18) {
        0 => Read::ApiVersion,
        1 | 2 => Read::Kind,
        3 => Read::Namespace,
        4 => Read::Name,
        5 => Read::Label(text(rng, KEYS)),
        6 => Read::Annotation(text(rng, KEYS)),
        7 | 8 => Read::Get(text(rng, PLACES)),
        // Seldom a path with rows, which traps.
        9 if rng.one_in(8) => Read::Text(text(rng, ROWS)),
        9..=11 => Read::Text(text(rng, PLACES)),
        12 => Read::TextOf(many(rng)),
        13 => Read::OneOf(text(rng, PLACES), NODES.iter().chain(SERVICES).map(|text| (*text).to_owned()).collect()),
        14 | 15 => Read::Lengths(text(rng, ROWS)),
        16 => match rng.below(4) {
            0 => Read::Column(text(rng, ROWS)),
            1 => Read::Keys("metadata.labels".to_owned()),
            2 => Read::Json,
            _ => Read::Fingerprint(text(rng, ROWS)),
        },
        _ => Read::Kind,
    }
}

fn edit(rng: &mut Rng) -> Edit {
    let at = if rng.one_in(6) { text(rng, GUARDED) } else { text(rng, PLACES) };
    match rng.below(9) {
        0 | 1 => Edit::Set(if rng.one_in(2) { at } else { "metadata.annotations.set".to_owned() }, many(rng)),
        2 => Edit::SetRows(text(rng, ROWS), rng.below(5) as u32),
        3 => Edit::Remove(if rng.one_in(2) { at } else { text(rng, ROWS) }),
        4 => Edit::RemoveRows(text(rng, ROWS), rng.below(5) as u32),
        5 => Edit::Retain(text(rng, ROWS)),
        6 | 7 => Edit::RetainIn(text(rng, ROWS), vec![NODE.to_owned(), text(rng, NODES)]),
        _ if rng.one_in(3) => Edit::Replace,
        _ => Edit::Append("endpoints".to_owned()),
    }
}
