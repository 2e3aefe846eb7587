//! Generated programs. They are pure functions of what they read, but otherwise arbitrary.

use guest::{Edit, Op, Program, Read, Select};

use super::cluster::{NODE, NODES, POOLS, SERVICES};
use super::dice::Dice;

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
pub(crate) fn program(dice: &mut Dice) -> String {
    let ops = (0..=dice.below(9)).map(|_| op(dice)).collect();
    serde_json::to_string(&Program { ops, ..Program::default() }).unwrap()
}

fn text(dice: &mut Dice, from: &[&str]) -> String {
    dice.pick(from).to_owned()
}

fn many(dice: &mut Dice) -> u64 {
    2 + dice.below(5) as u64
}

fn name(dice: &mut Dice) -> String {
    match dice.below(3) {
        0 => text(dice, SERVICES),
        1 => text(dice, POOLS),
        _ => NODE.to_owned(),
    }
}

fn op(dice: &mut Dice) -> Op {
    let target = dice.below(3);
    match dice.below(22) {
        0..=6 => Op::Read(target, read(dice)),
        7..=9 => Op::Edit(if dice.one_in(8) { target } else { 0 }, edit(dice)),
        10 => Op::Get(text(dice, RESOURCES), dice.one_in(2), name(dice)),
        11 | 12 => Op::Referent(text(dice, RESOURCES), if dice.one_in(3) { target } else { 0 }, text(dice, PLACES)),
        13 => {
            let selectors = ["", "apps.openyurt.io/nodepool=hangzhou", "apps.openyurt.io/nodepool"];
            // Seldom one that does not parse: it traps.
            let selector = if dice.one_in(12) { "a in".to_owned() } else { text(dice, &selectors) };
            Op::Find(text(dice, RESOURCES), dice.one_in(2), selector)
        }
        14 => Op::Select(match dice.below(4) {
            0 => Select::Count,
            1 => Select::At(dice.below(3) as u32),
            2 => Select::Column(text(dice, ROWS)),
            _ => Select::Memo(text(dice, ROWS)),
        }),
        15 => Op::Memo(1 + target, text(dice, ROWS)),
        16 | 17 => Op::Skip(many(dice), 1 + dice.below(3)),
        18 => Op::Hide(many(dice)),
        19 => match dice.below(4) {
            0 => Op::Fail(many(dice) * 2),
            1 => Op::Trap(many(dice) * 2),
            2 => Op::Log(many(dice)),
            _ => Op::LogOnce,
        },
        20 if dice.one_in(3) => Op::Addresses,
        _ => Op::Read(0, Read::Text(text(dice, PLACES))),
    }
}

fn read(dice: &mut Dice) -> Read {
    match dice.below(18) {
        0 => Read::ApiVersion,
        1 | 2 => Read::Kind,
        3 => Read::Namespace,
        4 => Read::Name,
        5 => Read::Label(text(dice, KEYS)),
        6 => Read::Annotation(text(dice, KEYS)),
        7 | 8 => Read::Get(text(dice, PLACES)),
        // Seldom a path with rows, which traps.
        9 if dice.one_in(8) => Read::Text(text(dice, ROWS)),
        9..=11 => Read::Text(text(dice, PLACES)),
        12 => Read::TextOf(many(dice)),
        13 => Read::OneOf(text(dice, PLACES), NODES.iter().chain(SERVICES).map(|text| (*text).to_owned()).collect()),
        14 | 15 => Read::Lengths(text(dice, ROWS)),
        16 => match dice.below(4) {
            0 => Read::Column(text(dice, ROWS)),
            1 => Read::Keys("metadata.labels".to_owned()),
            2 => Read::Json,
            _ => Read::Fingerprint(text(dice, ROWS)),
        },
        _ => Read::Kind,
    }
}

fn edit(dice: &mut Dice) -> Edit {
    let at = if dice.one_in(6) { text(dice, GUARDED) } else { text(dice, PLACES) };
    match dice.below(9) {
        0 | 1 => Edit::Set(if dice.one_in(2) { at } else { "metadata.annotations.set".to_owned() }, many(dice)),
        2 => Edit::SetRows(text(dice, ROWS), dice.below(5) as u32),
        3 => Edit::Remove(if dice.one_in(2) { at } else { text(dice, ROWS) }),
        4 => Edit::RemoveRows(text(dice, ROWS), dice.below(5) as u32),
        5 => Edit::Retain(text(dice, ROWS)),
        6 | 7 => Edit::RetainIn(text(dice, ROWS), vec![NODE.to_owned(), text(dice, NODES)]),
        _ if dice.one_in(3) => Edit::Replace,
        _ => Edit::Append("endpoints".to_owned()),
    }
}
