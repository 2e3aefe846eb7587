use super::*;
use crate::clock;

fn servers(mode: ServerMode) -> Servers {
    with_relays(["http://a", "http://b", "http://c"], &[], mode)
}

fn with_relays<const N: usize>(urls: [&str; N], relays: &[&str], mode: ServerMode) -> Servers {
    let urls = urls.map(|url| url.parse().unwrap());
    let direct = Dialer::direct(Duration::from_secs(1));
    let relays: Vec<_> = relays.iter().map(|node| (Arc::from(*node), direct.clone())).collect();
    Servers::new(&urls.iter().collect::<Vec<_>>(), &direct, &relays, mode).unwrap()
}

#[test]
fn the_preferred_server_is_first_unless_it_is_down() {
    let servers = servers(ServerMode::Priority);
    assert_eq!(servers.order(), [0, 1, 2]);
    assert!(servers.change().set(0, Condition::Down));
    assert!(!servers.change().set(0, Condition::Down), "no change");
    assert_eq!(servers.order(), [1, 2, 0]);
    servers.change().set(0, Condition::Up);
    assert_eq!(servers.order(), [0, 1, 2]);
}

#[test]
fn the_outage_begins_when_the_last_server_goes_down_and_ends_with_the_first_that_is_up() {
    let servers = servers(ServerMode::Priority);
    servers.change().set(0, Condition::Down);
    servers.change().set(1, Condition::Down);
    assert_eq!(servers.down_since(), None);
    let before = clock::now();
    servers.change().set(2, Condition::Down);
    let since = servers.down_since();
    assert!(since.is_some_and(|since| since >= before));
    servers.change().set(2, Condition::Down);
    assert_eq!(servers.down_since(), since, "a repeated report does not move it");
    servers.change().set(0, Condition::Up);
    assert_eq!(servers.down_since(), None);
    let states: Vec<_> = servers.status().into_iter().map(|server| server.state).collect();
    assert_eq!(states[0], ServerState::Up);
    assert_eq!(states[2], ServerState::Down { since });
}

#[test]
fn a_server_that_answers_is_no_outage_although_it_is_the_last_choice() {
    let servers = with_relays(["http://a", "http://b"], &[], ServerMode::Priority);
    servers.change().set(0, Condition::NotReady);
    servers.change().set(1, Condition::Down);
    assert!(!servers.are_down() && servers.down_since().is_none());
    assert_eq!((servers.order(), servers.status()[0].state), (vec![0, 1], ServerState::NotReady));
    servers.change().set(1, Condition::Up);
    assert_eq!(servers.order(), [1, 0]);
}

#[test]
fn a_server_that_was_down_is_up_after_two_answers_in_a_row() {
    let servers = with_relays(["https://a"], &["x"], ServerMode::Priority);
    let [direct, relayed] = servers.all() else { panic!("two ways") };
    assert!(direct.confirm(), "it was not down");
    servers.change().set(0, Condition::Down);
    assert!(!direct.confirm() && !direct.is_confirmed());
    servers.change().set(0, Condition::Down);
    assert!(!direct.confirm(), "a failure came in between");
    assert!(direct.confirm() && direct.is_confirmed());
    assert!(relayed.confirm(), "a peer is asked as the last resort");
}

#[test]
fn other_servers_differ_from_the_configured_ones() {
    let servers = servers(ServerMode::Priority);
    let matches = |urls: &[&str]| servers.matches(&urls.iter().map(|url| url.parse().unwrap()).collect::<Vec<_>>());
    assert!(matches(&["http://a", "http://b/", "http://c"]));
    for urls in
        [&["http://a", "http://b"][..], &["http://a", "http://b", "https://c"], &["http://a", "http://b", "http://c/x"]]
    {
        assert!(!matches(urls), "{urls:?}");
    }
}

#[test]
fn requests_rotate_over_the_servers_that_are_up() {
    let servers = servers(ServerMode::RoundRobin);
    assert_eq!([servers.order(), servers.order()], [[0, 1, 2], [1, 2, 0]]);
    servers.change().set(0, Condition::Down);
    assert_eq!([servers.order(), servers.order()], [[2, 1, 0], [1, 2, 0]]);
}

#[test]
fn peers_come_last_and_are_no_way_until_a_probe_has_passed() {
    let servers = with_relays(["https://a", "http://b"], &["x", "y"], ServerMode::RoundRobin);
    let names: Vec<_> = servers.iter().map(|server| &*server.name).collect();
    assert_eq!(names, ["a", "b", "a through x", "a through y"], "nothing without TLS goes through a peer");
    assert_eq!(servers.status()[2].state, ServerState::Standby);
    assert_eq!([servers.order(), servers.order()], [[0, 1, 2, 3], [1, 0, 2, 3]]);
    servers.change().set(0, Condition::Down);
    servers.change().set(1, Condition::Down);
    assert!(servers.are_down() && servers.down_since().is_some());
    servers.change().set(3, Condition::Up);
    assert!(!servers.are_down() && servers.down_since().is_none());
    assert_eq!((servers.order(), servers.in_use()), (vec![3, 0, 1, 2], 3));
    servers.change().set(2, Condition::Up);
    assert_eq!(servers.in_use(), 2, "the first of them");
    servers.change().set(0, Condition::Up);
    assert_eq!(servers.in_use(), 0);
    assert_eq!(servers.order()[0], 0, "a direct way is preferred");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_answers_begins_again_after_a_failure() {
    let first = Probe::after(None, true);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let second = Probe::after(Some(first), true);
    assert_eq!(second.answers_for().as_secs(), 4);
    let failed = Probe::after(Some(second), false);
    assert!(!failed.is_answered() && failed.answers_for().is_zero());
    assert!(Probe::after(Some(failed), true).answers_for().is_zero());
}
