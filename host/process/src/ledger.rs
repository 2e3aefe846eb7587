//! One ledger of the bytes that the daemon holds for each owner beyond a request.
//!
//! Clients choose the names of views, stores and remembered responses, so each of these carries a [`Charge`] of what it costs:
//! its task, its keys and its index, not objects alone. Half of the budget is for the daemon and for node components: nobody
//! else can take it, and the ledger never refuses them, whose needs are bounded by what runs on the node. All others share the
//! second half, and one [`Owner`] has at most a tenth of the budget, and no less than [`MIN_SHARE`].
//!
//! Memory: one account for each owner with a charge, and for a minute longer for one that was refused.

mod owner;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use self::owner::Owner;
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// The least that one owner may have.
const MIN_SHARE: u64 = 8 << 20;
/// How often a refusal of one owner is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// How long an owner opens nothing new after something of it has outgrown its share.
const PENALTY: Duration = Duration::from_secs(30);
/// The most accounts that are kept only because of a refusal.
const MAX_REFUSED: usize = 1024;

/// The ledger. Clones share it.
#[derive(Debug, Clone)]
pub struct Ledger(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    budget: u64,
    accounts: Mutex<Accounts>,
}

#[derive(Debug, Default)]
struct Accounts {
    /// What all owners but the daemon and node components have.
    others: u64,
    by_owner: HashMap<Owner, Account>,
}

#[derive(Debug, Default)]
struct Account {
    views: u64,
    answers: u64,
    /// When a refusal was logged.
    logged: Option<Instant>,
    /// Until when nothing new is opened.
    refused_until: Option<Instant>,
}

/// The use of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Views and the stores that they show.
    Views,
    /// Remembered responses: at most a quarter of a share, since they only help later.
    Answers,
}

/// A charge would exceed a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OverShare {
    /// The owner's own.
    #[error(
        "this user's share of Weir's memory is used up: {used} of {share} bytes; close watches that are not needed"
    )]
    OfOwner {
        /// What the owner has.
        used: u64,
        /// Its limit.
        share: u64,
    },
    /// Something of the owner has outgrown its share not long ago.
    #[error(
        "this user has exceeded its share of Weir's memory of {share} bytes, and opens nothing new for {} s", PENALTY.as_secs()
    )]
    Penalty {
        /// The limit of the owner.
        share: u64,
    },
    /// That of all clients together, except for node components.
    #[error("the share of all users in Weir's memory is used up: {used} of {share} bytes")]
    OfOthers {
        /// What they have.
        used: u64,
        /// Their limit.
        share: u64,
    },
}

/// Bytes of an owner. They are given back on drop.
#[must_use = "a charge is given back when it is dropped"]
#[derive(Debug)]
pub struct Charge {
    ledger: Ledger,
    owner: Owner,
    of: Use,
    bytes: Mutex<u64>,
}

impl Account {
    fn total(&self) -> u64 {
        self.views + self.answers
    }

    fn used(&mut self, of: Use) -> &mut u64 {
        match of {
            Use::Views => &mut self.views,
            Use::Answers => &mut self.answers,
        }
    }

    fn is_refused(&self) -> bool {
        self.refused_until.is_some_and(|until| Instant::now() < until)
    }

    fn is_idle(&self) -> bool {
        self.total() == 0 && !self.is_refused() && self.logged.is_none_or(|at| at.elapsed() > LOG_INTERVAL)
    }
}

impl Ledger {
    /// A ledger of this many bytes.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        Self(Arc::new(Inner { budget, accounts: Mutex::default() }))
    }

    /// The most that one owner may have.
    pub fn share(&self) -> u64 {
        (self.0.budget / 10).max(MIN_SHARE)
    }

    /// The most that all owners may have, except for the daemon and node components.
    fn share_of_others(&self) -> u64 {
        (self.0.budget / 2).max(MIN_SHARE)
    }

    /// The most that remembered responses of an owner may take.
    pub fn share_of_answers(&self, owner: &Owner) -> u64 {
        if owner.is_reserved() { self.0.budget / 8 } else { self.share() / 4 }
    }

    /// Charges an owner for something new.
    ///
    /// # Errors
    /// It would exceed a share. Node components and the daemon are refused only what they would remember.
    pub fn charge(&self, owner: &Owner, of: Use, bytes: u64) -> Result<Charge, OverShare> {
        self.take(owner, of, bytes, true)
    }

    fn take(&self, owner: &Owner, of: Use, bytes: u64, is_new: bool) -> Result<Charge, OverShare> {
        let mut accounts = self.accounts();
        let others = accounts.others;
        let account = accounts.by_owner.entry(owner.clone()).or_default();
        let check = match of {
            Use::Answers if account.answers + bytes > self.share_of_answers(owner) => {
                Err(OverShare::OfOwner { used: account.answers, share: self.share_of_answers(owner) })
            }
            _ if owner.is_reserved() => Ok(()),
            Use::Views if is_new && account.is_refused() => Err(OverShare::Penalty { share: self.share() }),
            _ if account.total() + bytes > self.share() => {
                Err(OverShare::OfOwner { used: account.total(), share: self.share() })
            }
            _ if others + bytes > self.share_of_others() => {
                Err(OverShare::OfOthers { used: others, share: self.share_of_others() })
            }
            _ => Ok(()),
        };
        if let Err(error) = check {
            accounts.forget_idle(owner);
            return Err(error);
        }
        accounts.add(owner, of, bytes);
        Ok(Charge { ledger: self.clone(), owner: owner.clone(), of, bytes: Mutex::new(bytes) })
    }

    /// What an owner has.
    pub fn used(&self, owner: &Owner) -> u64 {
        self.accounts().by_owner.get(owner).map_or(0, Account::total)
    }

    /// How much an owner has beyond its share: what it has may grow after it was charged.
    pub fn excess(&self, owner: &Owner) -> u64 {
        if owner.is_reserved() {
            return 0;
        }
        self.used(owner).saturating_sub(self.share())
    }

    /// How much all owners have beyond their share, except for the daemon and node components.
    pub fn excess_of_others(&self) -> u64 {
        self.accounts().others.saturating_sub(self.share_of_others())
    }

    /// Notes that something of an owner has outgrown its share: it opens nothing new for a while, because it would grow again.
    pub fn penalize(&self, owner: &Owner) {
        let mut accounts = self.accounts();
        accounts.by_owner.entry(owner.clone()).or_default().refused_until = Some(Instant::now() + PENALTY);
        accounts.bound();
    }

    /// Whether a refusal of this owner is to be logged: once a minute.
    pub fn should_log(&self, owner: &Owner) -> bool {
        let mut accounts = self.accounts();
        let account = accounts.by_owner.entry(owner.clone()).or_default();
        let is_due = account.logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL);
        if is_due {
            account.logged = Some(Instant::now());
        }
        accounts.bound();
        is_due
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.0.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accounts {
    fn add(&mut self, owner: &Owner, of: Use, bytes: u64) {
        *self.by_owner.entry(owner.clone()).or_default().used(of) += bytes;
        self.others += if owner.is_reserved() { 0 } else { bytes };
    }

    fn subtract(&mut self, owner: &Owner, of: Use, bytes: u64) {
        if let Some(account) = self.by_owner.get_mut(owner) {
            *account.used(of) -= bytes;
            self.others -= if owner.is_reserved() { 0 } else { bytes };
        }
        self.forget_idle(owner);
    }

    fn forget_idle(&mut self, owner: &Owner) {
        if self.by_owner.get(owner).is_some_and(Account::is_idle) {
            self.by_owner.remove(owner);
        }
    }

    /// Forgets refusals beyond the bound.
    fn bound(&mut self) {
        if self.by_owner.len() > MAX_REFUSED {
            self.by_owner.retain(|_, account| !account.is_idle());
        }
        if self.by_owner.values().filter(|account| account.total() == 0).count() > MAX_REFUSED {
            self.by_owner.retain(|_, account| account.total() > 0);
        }
    }
}

impl Charge {
    /// One more charge of its owner, of nothing so far: for what comes with what the owner has, unasked.
    pub fn another(&self) -> Self {
        Self { ledger: self.ledger.clone(), owner: self.owner.clone(), of: self.of, bytes: Mutex::new(0) }
    }

    /// Whose it is.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// What it is.
    pub fn bytes(&self) -> u64 {
        *self.locked()
    }

    /// Grows it to so many bytes in all. A penalty is for what is new.
    ///
    /// # Errors
    /// They would exceed a share. It stays as it is.
    pub fn grow_to(&self, bytes: u64) -> Result<(), OverShare> {
        // Locked throughout: two lists that grow it at the same time do not add to each other.
        let mut own = self.locked();
        let more = self.ledger.take(&self.owner, self.of, bytes.saturating_sub(*own), false)?;
        *own += std::mem::take(&mut *more.locked());
        Ok(())
    }

    /// Sets what it costs now, even beyond the share: the caller closes what is too much.
    pub fn set(&self, bytes: u64) {
        let mut own = self.locked();
        let mut accounts = self.ledger.accounts();
        accounts.add(&self.owner, self.of, bytes);
        accounts.subtract(&self.owner, self.of, *own);
        *own = bytes;
    }

    fn locked(&self) -> MutexGuard<'_, u64> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = self.bytes();
        self.ledger.accounts().subtract(&self.owner, self.of, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn client(name: &str) -> Owner {
        Owner::Client(name.into())
    }

    fn fill(ledger: &Ledger, owner: &Owner) -> Vec<Charge> {
        std::iter::from_fn(|| ledger.charge(owner, Use::Views, MIB).ok()).take(1000).collect()
    }

    #[test]
    fn an_owner_has_its_share_and_no_more_and_gives_it_back() {
        let ledger = Ledger::new(200 * MIB);
        let charges = fill(&ledger, &client("a"));
        assert_eq!((charges.len(), ledger.used(&client("a"))), (20, 20 * MIB));
        let refused = ledger.charge(&client("a"), Use::Views, MIB).unwrap_err();
        assert_eq!(refused, OverShare::OfOwner { used: 20 * MIB, share: 20 * MIB });
        assert!(ledger.charge(&client("b"), Use::Views, MIB).is_ok());
        drop(charges);
        assert!(ledger.accounts().by_owner.is_empty());
        assert_eq!(Ledger::new(MIB).share(), MIN_SHARE);
    }

    #[test]
    fn nobody_takes_the_part_of_the_daemon_and_of_node_components() {
        let ledger = Ledger::new(200 * MIB);
        let charges: Vec<_> = (0..100).flat_map(|n| fill(&ledger, &client(&n.to_string()))).collect();
        assert_eq!(charges.len(), 100, "half of the budget");
        let refused = ledger.charge(&client("new"), Use::Views, MIB).unwrap_err();
        assert_eq!(refused, OverShare::OfOthers { used: 100 * MIB, share: 100 * MIB });
        for owner in [Owner::Node, Owner::Daemon] {
            assert_eq!(fill(&ledger, &owner).len(), 1000, "{owner:?}");
        }
    }

    #[test]
    fn what_grows_counts_and_its_owner_opens_nothing_new_for_a_while() {
        let ledger = Ledger::new(200 * MIB);
        let charge = ledger.charge(&client("a"), Use::Views, MIB).unwrap();
        charge.set(50 * MIB);
        assert_eq!((ledger.excess(&client("a")), charge.bytes()), (30 * MIB, 50 * MIB));
        ledger.penalize(charge.owner());
        assert!(charge.grow_to(51 * MIB).is_err());
        charge.set(MIB);
        assert!(charge.grow_to(2 * MIB).is_ok(), "a penalty is for what is new");
        drop(charge);
        assert_eq!(ledger.excess(&client("a")), 0);
        let refused = ledger.charge(&client("a"), Use::Views, 1).unwrap_err();
        assert_eq!(refused, OverShare::Penalty { share: 20 * MIB });
        assert!(ledger.charge(&client("a"), Use::Answers, 1).is_ok());
        let node = ledger.charge(&Owner::Node, Use::Views, MIB).unwrap();
        node.set(500 * MIB);
        assert_eq!(ledger.excess(&Owner::Node), 0);
    }

    #[test]
    fn remembered_responses_leave_room_for_views() {
        let ledger = Ledger::new(200 * MIB);
        let answers: Vec<_> =
            std::iter::from_fn(|| ledger.charge(&client("a"), Use::Answers, MIB).ok()).take(100).collect();
        assert_eq!((answers.len(), fill(&ledger, &client("a")).len()), (5, 15));
        assert!(ledger.charge(&Owner::Node, Use::Answers, 26 * MIB).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_logged_once_a_minute_and_refused_owners_are_forgotten() {
        let ledger = Ledger::new(200 * MIB);
        assert!(ledger.should_log(&client("a")) && !ledger.should_log(&client("a")));
        assert!(ledger.should_log(&client("b")));
        tokio::time::advance(LOG_INTERVAL).await;
        assert!(ledger.should_log(&client("a")));
        for n in 0..10_000 {
            ledger.should_log(&client(&n.to_string()));
            ledger.penalize(&client(&n.to_string()));
        }
        assert!(ledger.accounts().by_owner.len() <= 2 * MAX_REFUSED);
    }
}
