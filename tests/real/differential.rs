//! Weir's parsers of credentials and of requests against kube-apiserver's own code, which `tests/controlplane/cmd/parser` runs.
//!
//! Both sides get the same bytes as they come from the network: hyper reads them here, net/http there. Where both read a
//! request, they must understand the same. Weir may refuse more. Where only hyper reads a request, the API server would get it
//! as hyper writes it, and must then understand the same, or refuse it.
//!
//! `make differential` asks `INPUTS` questions about credentials, and a twentieth as many about all else. `SEED` repeats a run.

mod credentials;
mod judge;
mod original;
mod resources;
mod selectors;

use std::path::Path;
use std::time::Instant;

use weir_tests::plane;

use self::credentials::credential;
use self::judge::{Judge, Kind};
use self::original::Original;
use self::resources::resource;
use self::selectors::{field_selector, label_selector};
use super::random::{self, Random};

/// The questions of `make test`.
const SHORT: u64 = 60_000;
/// The questions of a batch.
const BATCH: u64 = 2_000;
/// The processes of the original, each with a judge: what the machine of a test has at least.
const JUDGES: u64 = 2;

#[test]
fn weir_understands_credentials_and_requests_as_the_api_server_does() {
    let Some(program) = plane::program("parser") else { return };
    let number =
        |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty()).map(|text| text.parse().unwrap());
    let credentials = number("WEIR_INPUTS").unwrap_or(SHORT);
    let seed = number("WEIR_SEED").unwrap_or_else(random::seed);
    println!("SEED={seed} INPUTS={credentials}");
    let started = Instant::now();
    let judges = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..JUDGES)
            .map(|n| {
                let (program, random) = (&program, Random::new(seed.wrapping_mul(JUDGES).wrapping_add(n)));
                scope.spawn(move || judge(program, random, credentials.div_ceil(JUDGES)))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let [first, second] = judges.try_into().unwrap();
    for (judge, other) in first.into_iter().zip(second) {
        let judge = judge.joined(other);
        println!("{judge:?}");
        assert!(judge.differences.is_empty(), "SEED={seed}:\n{}", judge.differences.join("\n"));
        judge.assert_meaningful();
    }
    println!("{:?}", started.elapsed());
}

/// Asks about so many credentials, and fewer of all else.
fn judge(program: &Path, mut random: Random, credentials: u64) -> Vec<Judge> {
    let mut original = Original::start(program);
    let few = credentials.div_ceil(20).max(2 * BATCH);
    let kinds = [(Kind::Credential, credentials), (Kind::Resource, few), (Kind::Labels, few), (Kind::Fields, few)];
    let mut asked = |(kind, questions)| {
        let mut judge = Judge::new(kind);
        ask(&mut original, &mut judge, &mut random, questions);
        judge
    };
    kinds.map(&mut asked).into()
}

/// Asks that many questions, in batches.
fn ask(original: &mut Original, judge: &mut Judge, random: &mut Random, questions: u64) {
    let kind = judge.kind;
    let input = match kind {
        Kind::Credential => credential,
        Kind::Resource => resource,
        Kind::Labels => label_selector,
        Kind::Fields => field_selector,
    };
    let mut left = questions;
    while left > 0 {
        let inputs: Vec<Vec<u8>> = (0..left.min(BATCH)).map(|_| input(random)).collect();
        left -= inputs.len() as u64;
        // The original answers while Weir's side is computed.
        original.ask(inputs.iter().map(|input| (kind, input.as_slice())));
        let own: Vec<_> = inputs.iter().map(|input| kind.answer(input)).collect();
        let answers = original.answers();
        assert_eq!(answers.len(), inputs.len());
        let mut again = Vec::new();
        for ((input, own), answer) in inputs.into_iter().zip(own).zip(answers) {
            // As Weir forwards it.
            if let Some(forwarded) = judge.compare(&input, &own, &answer) {
                again.push((forwarded, own));
            }
        }
        original.ask(again.iter().map(|(forwarded, _)| (kind, forwarded.as_slice())));
        for ((forwarded, own), answer) in again.iter().zip(original.answers()) {
            judge.compare_forwarded(forwarded, own, &answer);
        }
    }
}
