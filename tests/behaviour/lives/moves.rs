//! What happens in a life, as plain data that a seed generates.

use super::random::Random;

/// One step. A step that does not apply, such as a stop of a stopped daemon, does nothing: any part of a life is a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// The daemon starts, as this node. Without the link, its responses are compared with the content of the disk.
    Start(Name),
    /// The daemon starts as a user who may not read the cache directory.
    StartAsOther,
    /// It is killed so many milliseconds after it was started.
    StartKilled(Name, u16),
    Stop,
    Kill,
    /// Waits until everything served is fresh.
    Sync,
    /// The same, and until all of it is on disk.
    Commit,
    /// A Service is created or changed.
    Change(u8),
    Delete(u8),
    /// The Secret changes.
    ChangeSecret,
    /// The link to the API server.
    Link(bool),
    /// Which cluster is at the other end of the link.
    Cluster(usize),
    Backup,
    /// The cluster is put back, and has so many writes after that.
    Restore(u8),
    Key(Key),
    Disk(Disk),
    ReadOnly(bool),
    /// The wall clock is so many hours ahead.
    Clock(i32),
    /// A release with another form has run.
    OtherRelease,
    Replace(CacheFile, By),
}

/// What the daemon is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Right,
    Localhost,
    Debian,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Away,
    Back,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disk {
    Fine,
    Full,
    /// Each write fails with EIO.
    Fails,
    /// Each fsync does.
    SyncFails,
    /// Each fsync takes a while.
    Slow,
}

/// A file of the cache directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheFile {
    Database,
    AsideNode,
    AsideCluster,
    AsideFormat,
    Key,
    LastTime,
    OfflineSince,
    /// One of the others, by its place in their order.
    Any(u8),
}

/// What is in the place of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Nothing,
    Folder,
    Pipe,
    LinkToNothing,
    LinkElsewhere,
    OtherNodes,
    LaterForm,
    Random,
    Unreadable,
    OtherOwner,
    /// The first half of it.
    Half,
    /// It with one byte changed, at so many 65,536ths of its length.
    Flipped(u16),
}

impl Name {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Right => "edge-a",
            Self::Localhost => "localhost",
            Self::Debian => "debian",
        }
    }

    fn random(random: &mut Random) -> Self {
        random.pick(&[Self::Right, Self::Right, Self::Right, Self::Right, Self::Localhost, Self::Debian])
    }
}

impl By {
    fn random(random: &mut Random) -> Self {
        let all = [
            Self::Nothing,
            Self::Folder,
            Self::Pipe,
            Self::LinkToNothing,
            Self::LinkElsewhere,
            Self::OtherNodes,
            Self::LaterForm,
            Self::Random,
            Self::Unreadable,
            Self::OtherOwner,
            Self::Half,
            Self::Flipped(random.number()),
        ];
        random.pick(&all)
    }
}

impl CacheFile {
    fn random(random: &mut Random) -> Self {
        let any = Self::Any(random.number().to_le_bytes()[0]);
        let aside = random.pick(&[Self::AsideNode, Self::AsideCluster, Self::AsideFormat]);
        random.pick(&[Self::Database, Self::Database, aside, Self::Key, Self::LastTime, Self::OfflineSince, any, any])
    }
}

/// The life of a seed: a first day online, then starts and stops.
pub(super) fn life(seed: u64) -> Vec<Move> {
    let mut random = Random::new(seed);
    let mut moves = vec![Move::Start(Name::Right), Move::Change(0), Move::Commit];
    running(&mut random, &mut moves);
    for _ in 0..4 + random.below(5) {
        moves.push(random.pick(&[Move::Stop, Move::Kill]));
        stopped(&mut random, &mut moves);
        let name = Name::random(&mut random);
        if random.one_in(8) {
            moves.push(Move::StartKilled(name, random.number() % 400));
        }
        let is_other = random.one_in(20);
        moves.push(if is_other { Move::StartAsOther } else { Move::Start(name) });
        running(&mut random, &mut moves);
    }
    // What there is in the end, under the right circumstances.
    moves.extend([Move::Kill, Move::Link(false), Move::Disk(Disk::Fine), Move::ReadOnly(false)]);
    moves.extend([Move::Start(Name::Right), Move::Link(true), Move::Commit, Move::Kill]);
    moves.extend([Move::Link(false), Move::Start(Name::Right)]);
    moves
}

/// What happens to the machine and the cluster while the daemon does not run.
fn stopped(random: &mut Random, moves: &mut Vec<Move>) {
    moves.push(Move::Link(random.below(100) < 40));
    // Faults last for a while, and end.
    moves.push(Move::Disk(Disk::Fine));
    moves.push(Move::ReadOnly(false));
    let number = random.number();
    for (cases, found) in [
        (6, Move::Cluster(usize::from(number % 2))),
        (6, Move::Restore((number % 40) as u8)),
        (6, Move::Change((number % 6) as u8)),
        (9, Move::Key(random.pick(&[Key::Away, Key::Back, Key::Other]))),
        (4, fault(random)),
        (10, Move::Clock(random.pick(&[-200_000, 0, 30, 9_000]))),
        (12, Move::OtherRelease),
        (4, Move::Replace(CacheFile::random(random), By::random(random))),
    ] {
        if random.one_in(cases) {
            moves.push(found);
        }
    }
}

fn fault(random: &mut Random) -> Move {
    let disk = random.pick(&[Disk::Full, Disk::Fails, Disk::SyncFails, Disk::Slow]);
    random.pick(&[Move::Disk(disk), Move::Disk(disk), Move::Disk(disk), Move::ReadOnly(true)])
}

fn running(random: &mut Random, moves: &mut Vec<Move>) {
    for _ in 0..random.below(6) {
        let number = (random.number() % 6) as u8;
        let often = [Move::Change(number), Move::Delete(number), Move::ChangeSecret, Move::Sync, Move::Commit];
        let rarely = [
            Move::Link(random.one_in(2)),
            Move::Link(true),
            Move::Cluster(usize::from(number % 2)),
            Move::Backup,
            Move::Backup,
            Move::Restore(number * 7),
            Move::Disk(Disk::Fine),
            fault(random),
            Move::Clock(random.pick(&[0, 30, 9_000])),
        ];
        moves.push(if random.one_in(3) { random.pick(&rarely) } else { random.pick(&often) });
    }
}
