//! What an operator should know of this node now: for each condition one line that says what it means and what to do.
//!
//! The lines are the same in `/status`, in `weir status`, on the status page and in `/readyz?verbose`; the metric `weir_notices` and
//! the condition of the Node have their names, and deploy/troubleshooting.md is by them. Those of filters are in [`super::health`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use weir_front::{ServingCertificate, ServingCertificateMetrics};
use weir_process::one_line;
use weir_store::CacheDifference;
use weir_store::disk::DiskCache;
use weir_upstream::{CertificateValidity, Upstream, clock};

use crate::config::PodsConfig;
use crate::node_facts::{NodeState, OFF, SWITCH};
use crate::pods::PodMetrics;
use crate::server_addresses::ServerAddresses;
use weir_access::{Outage, OutageStatus};

/// Those that are logged where they are found.
const LOGGED: [&str; 10] = [
    "offline",
    "history",
    "no-node",
    "nothing-kept",
    "cache-directory",
    "disk",
    "set-aside",
    "cache-key",
    "pod-address",
    "no-pod-interface",
];
/// How often conditions are looked for that are to be logged.
const PERIOD: Duration = Duration::from_secs(60);
/// How long it is shown that the cluster's history is another one.
const RECENT: Duration = Duration::from_secs(24 * 3600);
/// How long an outage lasts before it is shown what it will end.
const LONG: Duration = Duration::from_secs(3600);
/// How long after the start the HTTPS port may be without a certificate: somebody has to approve the request.
const APPROVAL: Duration = Duration::from_secs(300);
/// The longest reason of a notice.
const REASON: usize = 400;

/// Where the conditions are read. The default has none of them.
#[derive(Debug, Default)]
pub struct Notices {
    /// The time without an API server.
    pub(crate) outage: Option<Arc<Outage>>,
    /// This daemon's Node, by its name.
    pub(crate) node: Option<(String, watch::Receiver<NodeState>)>,
    /// The client certificates.
    pub(crate) upstream: Option<Arc<Upstream>>,
    /// Where the servers are.
    pub(crate) servers: Option<Arc<ServerAddresses>>,
    /// The HTTPS port, if there is one.
    pub(crate) https: Option<HttpsPort>,
    /// The address for pods, if there is one, and whether an interface has it.
    pub(crate) pod_address: Option<(PodsConfig, Arc<PodMetrics>)>,
    /// Where stores outlive the process; `Some(None)`: nowhere.
    pub(crate) disk: Option<Option<Arc<DiskCache>>>,
    /// The path of `--cache-dir`, and why it cannot be used.
    pub(crate) unusable_cache: Option<String>,
    /// The last change of the cluster's history, and what has shown it.
    pub(crate) history: Arc<Mutex<Option<(SystemTime, String)>>>,
}

/// The HTTPS port, and its certificate.
#[derive(Debug)]
pub(crate) struct HttpsPort {
    certificate: Arc<ServingCertificateMetrics>,
    /// Whether a CertificateSigningRequest asks for the certificate.
    is_requested: bool,
    /// From when on it is a fault to have none.
    expected: Instant,
}

impl HttpsPort {
    /// The port of a daemon that starts now.
    pub(crate) fn new(source: &ServingCertificate, certificate: Arc<ServingCertificateMetrics>) -> Self {
        let is_requested = *source == ServingCertificate::Requested;
        // A file needs nobody.
        let wait = if is_requested { APPROVAL } else { Duration::ZERO };
        Self { certificate, is_requested, expected: Instant::now() + wait }
    }

    /// Why there is no certificate, for so long that it is a fault.
    fn without_certificate(&self) -> Option<String> {
        (self.certificate.validity().is_none() && Instant::now() >= self.expected).then(|| {
            let action = match self.is_requested {
                true => "approve the CertificateSigningRequest of this node (kubectl get csr), or see the log for why there is none",
                false => "correct the files of --tls-cert-file, --tls-private-key-file and --client-ca-file, see the log",
            };
            format!("the HTTPS port has no certificate, its clients cannot connect: {action}")
        })
    }
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Its name, as the metric has it.
    pub(crate) name: &'static str,
    /// One line.
    pub(crate) text: String,
    /// The filters, lookups or resources that it is about. Unlike the text they change only with the fault itself: the
    /// condition of the Node has them, and each write of that goes to all watchers of Nodes.
    pub(crate) subjects: Vec<String>,
}

impl Notice {
    pub(crate) fn new(name: &'static str, text: String) -> Self {
        Self { name, text, subjects: Vec::new() }
    }

    /// Adds what it is about.
    pub(super) fn about(self, subjects: impl IntoIterator<Item = String>) -> Self {
        Self { subjects: subjects.into_iter().collect(), ..self }
    }

    /// Whether it is no fault of the present.
    pub(crate) fn is_remark(&self) -> bool {
        matches!(self.name, "nothing-kept" | "no-pod-interface" | "history" | "set-aside")
    }
}

impl Notices {
    /// The present conditions.
    pub(crate) fn present(&self) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut add = |name, text: Option<String>| notices.extend(text.map(|text| Notice::new(name, text)));
        let outage = self.outage.as_ref().and_then(|outage| Some((outage.status()?, outage.grace())));
        add("offline", outage.map(|(outage, _)| offline(&outage)));
        add("grace", outage.and_then(|(outage, grace)| ends(&outage, grace)));
        add("server-address", self.servers.as_ref().and_then(|servers| servers.notice()));
        add("no-certificate", self.https.as_ref().and_then(HttpsPort::without_certificate));
        add("pod-address", self.absent_pod_address(true));
        add("no-pod-interface", self.absent_pod_address(false));
        add("cache-directory", self.unusable_cache.as_deref().map(unusable_cache));
        let is_own_choice = self.unusable_cache.is_none() && matches!(self.disk, Some(None));
        add("nothing-kept", is_own_choice.then(|| {
            "nothing is kept on this node, a restart without an API server serves nothing: set --cache-dir and no --cache-size=0".to_owned()
        }));
        for condition in self.disk.iter().flatten().flat_map(|disk| disk.conditions()) {
            add(condition.name, Some(condition.text));
        }
        add("history", self.history());
        add("unknown-switch", self.node.as_ref().and_then(|(name, state)| unknown_switch(name, &state.borrow())));
        add("no-node", self.node.as_ref().and_then(|(name, state)| no_node(name, &state.borrow())));
        for (credential, validity) in self.client_certificates() {
            add("client-certificate", ending(credential, validity));
        }
        add("certificate", self.https.as_ref().and_then(|port| expiring(port.certificate.validity()?)));
        notices
    }

    /// No interface has the address for pods. `is_managed`: Weir is to put it on one; else another program does.
    fn absent_pod_address(&self, is_managed: bool) -> Option<String> {
        let (PodsConfig { address, interface, .. }, metrics) = self.pod_address.as_ref()?;
        let is_absent = metrics.is_up() == Some(false) && interface.is_some() == is_managed;
        is_absent.then(|| match is_managed {
            true => format!("no interface has the pod address {address}, pods cannot connect: grant NET_ADMIN, or put it on an interface yourself, see the log"),
            false => format!("no interface has the pod address {address}, pods cannot connect until another program puts it on one: --pod-interface is empty"),
        })
    }

    /// Logs conditions that come and go. Runs until it is dropped.
    pub(crate) async fn log(self: Arc<Self>) {
        let mut known = BTreeSet::new();
        loop {
            let present = self.present();
            for notice in present.iter().filter(|notice| !known.contains(notice.name) && !LOGGED.contains(&notice.name))
            {
                tracing::warn!(notice = notice.name, "{}", notice.text);
            }
            let names: BTreeSet<_> = present.iter().map(|notice| notice.name).collect();
            for over in known.difference(&names).filter(|name| !LOGGED.contains(*name)) {
                tracing::info!(notice = over, "that is over");
            }
            known = names;
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// The validity of the client certificates, by credential.
    fn client_certificates(&self) -> impl Iterator<Item = (&'static str, CertificateValidity)> {
        let all = self.upstream.iter().flat_map(|upstream| upstream.certificate_validity());
        all.filter_map(|(credential, validity)| Some((credential, validity?)))
    }

    fn history(&self) -> Option<String> {
        let (at, found) = self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let is_recent = clock::now().duration_since(at).is_ok_and(|age| age < RECENT);
        is_recent.then(|| {
            format!("the cluster's history went back at {}, as when etcd is restored from a backup ({found}): what differed was listed again, nothing is to be done", time(at))
        })
    }

    /// Notes changes of the cluster's history. Runs until it is dropped.
    pub(crate) async fn follow_history(
        history: Arc<Mutex<Option<(SystemTime, String)>>>,
        mut differences: broadcast::Receiver<CacheDifference>,
    ) {
        loop {
            match differences.recv().await {
                Ok(found) if found.goes_on => {
                    let text = format!("watch cache {}: {}", found.store, found.difference);
                    *history.lock().unwrap_or_else(PoisonError::into_inner) = Some((clock::now(), text));
                }
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }
}

/// The metric of the conditions.
pub(super) type NoticeMetric = Family<[(&'static str, String); 1], Gauge>;

/// The metrics of client certificates.
#[derive(Debug, Default)]
pub(super) struct ClientCertificateMetrics {
    pub(super) expiry: Family<[(&'static str, &'static str); 1], Gauge>,
    pub(super) lifetime: Family<[(&'static str, &'static str); 1], Gauge>,
}

impl ClientCertificateMetrics {
    #[cfg(test)]
    pub(super) fn sample_labels(&self) {
        for metric in [&self.expiry, &self.lifetime] {
            metric.get_or_create(&[("credential", "")]).set(0);
        }
    }
}

/// Exports the present conditions, and the validity of client certificates.
pub(super) fn sample(
    notices: &Notices,
    present: &[Notice],
    metric: &NoticeMetric,
    certificates: &ClientCertificateMetrics,
) {
    metric.clear();
    for notice in present {
        metric.get_or_create(&[("notice", notice.name.to_owned())]).set(1);
    }
    certificates.expiry.clear();
    certificates.lifetime.clear();
    for (credential, CertificateValidity { ends, lifetime }) in notices.client_certificates() {
        let ends = ends.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        for (metric, time) in [(&certificates.expiry, ends), (&certificates.lifetime, lifetime)] {
            let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
            metric.get_or_create(&[("credential", credential)]).set(seconds);
        }
    }
}

fn unusable_cache(reason: &str) -> String {
    format!(
        "--cache-dir cannot be used, nothing is kept on this node, a restart without an API server serves nothing: give Weir a directory of its own on a disk that works, then restart it: {}",
        one_line(reason, REASON)
    )
}

fn offline(outage: &OutageStatus) -> String {
    let age = clock::now().duration_since(outage.since).unwrap_or_default();
    format!(
        "what is served is {} old, no API server has answered since {}: check the link",
        rounded(age),
        time(outage.since)
    )
}

fn ends(outage: &OutageStatus, grace: Duration) -> Option<String> {
    if let Some(end) = outage.ended(grace) {
        return Some(format!(
            "clients other than node components have lost their permissions at {}, after {} without an API server: bring the link back, or set a longer --offline-grace",
            time(end),
            rounded(grace)
        ));
    }
    (outage.running >= LONG.min(grace / 2)).then(|| {
        format!(
            "clients other than node components lose their permissions in {}, at about {} (--offline-grace={}): bring the link back before that",
            rounded(outage.left), time(clock::now() + outage.left), rounded(grace)
        )
    })
}

fn unknown_switch(name: &str, state: &NodeState) -> Option<String> {
    let NodeState::Known(facts) = state else { return None };
    let value = facts.unknown_switch.as_ref()?;
    Some(format!(
        "the annotation {SWITCH} of the Node {name} is {value:?}, which turns nothing off: all filters are off with {OFF}"
    ))
}

fn no_node(name: &str, state: &NodeState) -> Option<String> {
    match state {
        NodeState::Known(facts) if facts.is_missing => Some(format!(
            "the cluster has no Node {name}: check --node-name, filters by pool keep the pool that it last had until it exists"
        )),
        NodeState::Unreadable(reason) => Some(format!(
            "the Node {name} cannot be read ({reason}): filters with `nodes` are refused, and its annotation has no effect; apply the role of deploy/rbac.yaml"
        )),
        NodeState::Known(_) | NodeState::Pending | NodeState::Away => None,
    }
}

/// Whether a certificate expires soon or has expired.
fn end(validity: CertificateValidity) -> Option<&'static str> {
    validity.ends_soon().then_some(if validity.ends < clock::now() { "has expired" } else { "expires" })
}

fn ending(credential: &str, validity: CertificateValidity) -> Option<String> {
    let what = end(validity)?;
    Some(format!(
        "the client certificate of the {credential} credential {what} at {}: its issuer has to renew it, Weir takes a new one from its file",
        time(validity.ends)
    ))
}

fn expiring(validity: CertificateValidity) -> Option<String> {
    let what = end(validity)?;
    Some(format!(
        "the certificate of the HTTPS port {what} at {}: replace its files, or approve the CertificateSigningRequest of this node",
        time(validity.ends)
    ))
}

fn time(at: SystemTime) -> String {
    let at = Timestamp::try_from(at).unwrap_or(Timestamp::MAX);
    at.round(jiff::Unit::Second).unwrap_or(at).to_string()
}

/// Seconds, minutes or hours, whichever is exact enough.
fn rounded(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use weir_store::disk::DiskCondition;
    use weir_upstream::UpstreamConfig;

    use super::*;
    use crate::node_facts::NodeFacts;
    use crate::server_addresses::tests as addresses;

    const HOUR: Duration = Duration::from_secs(3600);

    /// The text of a condition, which is in the troubleshooting.
    fn text(notices: &Notices, name: &str) -> Option<String> {
        let notice = notices.present().into_iter().find(|notice| notice.name == name)?;
        assert_documented(notice.name, &notice.text);
        Some(notice.text)
    }

    pub(in crate::admin) fn assert_documented(name: &str, text: &str) {
        assert!(!text.contains('\n'), "{text}");
        let command = crate::config::definition();
        let serve = command.find_subcommand("serve").unwrap();
        let flags = text.split(|sign: char| !(sign.is_ascii_lowercase() || sign == '-'));
        for flag in flags.filter(|word| word.starts_with("--")) {
            let is_flag = serve.get_arguments().any(|known| known.get_long() == Some(&flag[2..]));
            assert!(is_flag, "{flag} of {text:?} is no flag");
        }
        let readme = include_str!("../../../deploy/troubleshooting.md");
        let start = format!("| `{name}`<a id=\"{name}\"></a> | ");
        let row = readme.lines().find(|line| line.starts_with(&start)).expect(name);
        let mut texts = row.split(" | ").nth(1).expect(name).split("`; `").map(|text| text.trim_matches('`'));
        // Each part between the dots, in this order.
        let is_shown = |shown: &str| {
            shown.split('…').try_fold(text, |rest, part| rest.split_once(part).map(|(_, rest)| rest)).is_some()
        };
        assert!(texts.any(is_shown), "{text:?} is not in {row}");
    }

    #[test]
    fn what_is_wrong_with_the_disk_is_in_the_troubleshooting() {
        let conditions = DiskCondition::samples();
        for condition in &conditions {
            assert_documented(condition.name, &condition.text);
        }
        assert!(conditions.iter().any(|condition| condition.name == "slow-disk"));
    }

    #[tokio::test]
    async fn that_the_server_may_be_elsewhere_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        for (words, servers) in addresses::moved(folder.path()).await {
            let notices = Notices { servers: Some(servers), ..Notices::default() };
            let shown = text(&notices, "server-address");
            assert!(shown.as_ref().is_some_and(|text| text.contains(words)), "{shown:?} without {words}");
        }
    }

    fn outage() -> Arc<Outage> {
        let config = UpstreamConfig::new(kube::Config::new("http://127.0.0.1:1".parse().unwrap()));
        Outage::new(Arc::new(Upstream::new(&config, Arc::default()).unwrap()), 24 * HOUR)
    }

    #[tokio::test]
    async fn an_outage_is_shown_with_its_age_and_the_end_of_the_grace() {
        let since = clock::now() - 3 * HOUR;
        for (running, said) in
            [(3 * HOUR, Some("lose their permissions in 20 h")), (24 * HOUR, Some("have lost")), (HOUR / 2, None)]
        {
            let outage = outage();
            outage.resume(since, running).await;
            let notices = Notices { outage: Some(outage), ..Notices::default() };
            assert!(text(&notices, "offline").is_some_and(|text| text.starts_with("what is served is 3 h old")));
            let grace = text(&notices, "grace");
            assert_eq!(
                grace.as_deref().zip(said).map(|(text, said)| text.contains(said)),
                said.map(|_| true),
                "{grace:?}"
            );
        }
        let online = Notices { outage: Some(outage()), ..Notices::default() };
        assert!(online.present().is_empty());
    }

    #[test]
    fn a_node_that_is_not_there_a_certificate_that_ends_and_another_history_are_shown() {
        let missing = NodeFacts { is_missing: true, ..NodeFacts::default() };
        let state =
            |state| Notices { node: Some(("edge-a".to_owned(), watch::channel(state).1)), ..Notices::default() };
        assert!(text(&state(NodeState::Known(missing)), "no-node").is_some_and(|text| text.contains("no Node edge-a")));
        assert_eq!(text(&state(NodeState::Known(NodeFacts::default())), "no-node"), None);
        assert_eq!(text(&state(NodeState::Known(NodeFacts::default())), "unknown-switch"), None);
        let misspelt = NodeFacts { unknown_switch: Some("Off".to_owned()), ..NodeFacts::default() };
        let shown = text(&state(NodeState::Known(misspelt)), "unknown-switch");
        assert!(shown.is_some_and(|text| text.contains("is \"Off\", which turns nothing off")));

        let port = HttpsPort::sample(false);
        let metrics = port.certificate.clone();
        let notices = Notices { https: Some(port), ..Notices::default() };
        assert_eq!(text(&notices, "certificate"), None);
        assert!(text(&notices, "no-certificate").is_some_and(|text| text.contains("--tls-cert-file")));
        let (now, year) = (clock::now(), 365 * 24 * HOUR);
        for (ends, lifetime, said) in [
            (now - 60 * HOUR, year, Some("has expired")),
            (now + HOUR, year, Some("expires at")),
            (now + 6 * 24 * HOUR, year, Some("expires at")),
            (now + 30 * 24 * HOUR, year, None),
            // A certificate of a day is not always about to end.
            (now + 24 * HOUR, 24 * HOUR, None),
            (now + 4 * HOUR, 24 * HOUR, None),
            (now + 2 * HOUR, 24 * HOUR, Some("expires at")),
        ] {
            let validity = CertificateValidity { ends, lifetime };
            metrics.set(validity);
            let found = text(&notices, "certificate");
            assert_eq!(found.is_some(), said.is_some(), "{found:?}");
            assert!(found.unwrap_or_default().contains(said.unwrap_or_default()));
            assert_eq!(text(&notices, "no-certificate"), None, "another notice says that it ends");
            assert_eq!(ending("node", validity).is_some(), said.is_some(), "{validity:?}");
        }

        *notices.history.lock().unwrap() = Some((clock::now(), "x is missing".to_owned()));
        assert!(text(&notices, "history").is_some_and(|text| text.contains("x is missing")));
        *notices.history.lock().unwrap() = Some((clock::now() - 25 * HOUR, String::new()));
        assert_eq!(text(&notices, "history"), None);
    }

    impl HttpsPort {
        /// A port that has been without a certificate for too long.
        pub(in crate::admin) fn sample(is_requested: bool) -> Self {
            Self { certificate: Arc::default(), is_requested, expected: Instant::now() }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_without_a_certificate_is_a_fault_once_it_could_have_been_approved() {
        let files = ServingCertificate::Files { certificate: "c".into(), key: "k".into() };
        let shown = |notices: &Notices| text(notices, "no-certificate");
        let port = |source| {
            let port = HttpsPort::new(&source, Arc::default());
            Notices { https: Some(port), ..Notices::default() }
        };
        assert_eq!(shown(&Notices::default()), None, "there is no HTTPS port");
        assert!(shown(&port(files)).is_some_and(|text| text.contains("correct the files")));
        let requested = port(ServingCertificate::Requested);
        tokio::time::advance(APPROVAL - Duration::from_secs(1)).await;
        assert_eq!(shown(&requested), None, "somebody may approve it");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(shown(&requested).is_some_and(|text| text.contains("kubectl get csr")));
        let validity = CertificateValidity { ends: clock::now() + 365 * 24 * HOUR, lifetime: 365 * 24 * HOUR };
        requested.https.as_ref().unwrap().certificate.set(validity);
        assert_eq!(shown(&requested), None);
    }

    /// The address for pods is on no interface, and Weir is to put it on this one, or on none.
    pub(in crate::admin) fn without_pod_address(interface: Option<&str>) -> Notices {
        let address = "169.254.20.10".parse().unwrap();
        let config = PodsConfig { address, port: 10268, interface: interface.map(str::to_owned) };
        let metrics = PodMetrics::default();
        metrics.sample();
        Notices { pod_address: Some((config, Arc::new(metrics))), ..Notices::default() }
    }

    #[test]
    fn a_pod_address_on_no_interface_is_a_fault_unless_another_program_provides_it() {
        for (interface, name, said) in
            [(Some("weir0"), "pod-address", "grant NET_ADMIN"), (None, "no-pod-interface", "--pod-interface is empty")]
        {
            let notices = without_pod_address(interface);
            assert!(text(&notices, name).is_some_and(|text| text.contains(said)));
            let present = notices.present();
            assert_eq!((present.len(), present[0].is_remark()), (1, interface.is_none()), "{present:?}");
            let (config, metrics) = notices.pod_address.unwrap();
            metrics.address(true);
            let up = Notices { pod_address: Some((config.clone(), metrics)), ..Notices::default() };
            assert_eq!(up.present(), []);
            let unknown = Notices { pod_address: Some((config, Arc::default())), ..Notices::default() };
            assert_eq!(unknown.present(), [], "it has not looked yet");
        }
    }

    #[test]
    fn that_nothing_is_kept_is_a_fault_unless_it_is_chosen() {
        let chosen = Notices { disk: Some(None), ..Notices::default() };
        assert!(text(&chosen, "nothing-kept").is_some_and(|text| text.contains("--cache-dir")));
        assert!(chosen.present().iter().all(Notice::is_remark));
        let failed = Notices { unusable_cache: Some("/c: x\n".to_owned()), ..chosen };
        assert!(text(&failed, "cache-directory").is_some_and(|text| text.contains("/c: x")));
        let present = failed.present();
        assert_eq!((present.len(), present[0].is_remark()), (1, false), "{present:?}");
    }
}
