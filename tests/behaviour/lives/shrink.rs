//! Makes a life that fails shorter, as long as it fails (delta debugging): moves that it does not need are left out.

use std::time::{Duration, Instant};

use super::moves::Move;

/// The longest time that it takes.
const MAX_TIME: Duration = Duration::from_secs(600);

/// Returns the smallest life that was found to fail, and how it fails, after at most so many lives. `fails`: how a life does;
/// `None` if it does not.
pub(super) async fn shrunk(
    mut moves: Vec<Move>,
    mut failure: String,
    most: u64,
    fails: impl AsyncFn(Vec<Move>) -> Option<String>,
) -> (Vec<Move>, String) {
    let (begun, mut lives) = (Instant::now(), 0);
    let mut size = moves.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        let before = moves.len();
        while at < moves.len() {
            if lives >= most || begun.elapsed() > MAX_TIME {
                return (moves, failure);
            }
            let mut without = moves.clone();
            without.drain(at..(at + size).min(moves.len()));
            lives += 1;
            match fails(without.clone()).await {
                Some(found) => (moves, failure) = (without, found),
                None => at += size,
            }
        }
        if size > 1 || moves.len() == before {
            size /= 2;
        }
    }
    (moves, failure)
}

#[tokio::test]
async fn a_life_is_shrunk_to_the_moves_that_it_fails_by() {
    let needed = [Move::Kill, Move::Restore(7)];
    let moves: Vec<_> = (0..30).map(Move::Change).chain(needed).chain((0..9).map(Move::Delete)).collect();
    let fails =
        async |moves: Vec<Move>| needed.iter().all(|one| moves.contains(one)).then(|| format!("{}", moves.len()));
    let (shrunk, failure) = shrunk(moves, String::new(), 80, fails).await;
    assert_eq!((&shrunk[..], &*failure), (&needed[..], "2"));
}
