//! The checks, in the order in which a node is set up: kubelet with a static pod only; kubelet with its certificate;
//! the other clients; the node without its control plane; a neighbour; evictions; `deploy/` as a DaemonSet, and its
//! replacement; changes of the objects that the clients see; then the unit, the chart, and a node that comes from YurtHub.
//!
//! After each watch that fails or expires, client-go waits longer, up to a minute. Only a restart resets this
//! back-off. So kube-proxy is restarted before each check that needs it to react soon.

mod autonomy;
mod clients;
mod first_day;
mod local_status;
mod neighbour;
mod offline;
mod rules;
mod unit;
mod upgrade;
mod yurthub;

use serde_json::Value;

pub(crate) use self::offline::metrics;
use crate::cluster::{self, Cloud};
use crate::guide::Guide;
use crate::images;
use crate::kubectl::{Kubectl, holds};
use crate::machine::Machine;
use crate::parts::Part;
use crate::runner::{Runner, until};
use crate::{NODE, SERVER_NAME};

/// The label of Weir's pods, for the DaemonSet and the static pod.
const WEIR_PODS: &[&str] = &["-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=weir"];

/// The user that requests the serving certificate without a node credential.
const ACCOUNT: &str = "system:serviceaccount:kube-system:weir";

/// The running parts during the checks.
pub(crate) struct World<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) cloud: Cloud,
    pub(crate) admin: Kubectl,
    containerd: Option<Part>,
    record: Option<local_status::Record>,
    neighbour: Option<neighbour::Neighbour>,
    autonomy: Option<autonomy::Autonomy>,
}

/// Sets up a node whose kubelet, kube-proxy and CoreDNS are clients of Weir.
pub(crate) fn prepare<'a>(machine: &'a Machine, runner: &mut Runner) -> Option<World<'a>> {
    let world = runner.check("control_plane_and_containerd_start", || {
        let cloud = Cloud::start(machine);
        let containerd = cluster::start_containerd(machine);
        cluster::join(machine, &cloud);
        World {
            machine,
            admin: cloud.admin(),
            cloud,
            containerd: Some(containerd),
            record: None,
            neighbour: None,
            autonomy: None,
        }
    })?;
    runner.check("static_pod_serves_kubelet_with_the_node_credential", || world.by_node_credential());
    runner.check("https_port_gets_its_certificate_after_one_approval", || world.approve("system:node:edge-a"));
    runner.check("kubelet_uses_its_client_certificate", || world.by_certificate());
    runner.check("kube_proxy_and_coredns_use_their_tokens", || clients::start(&world))?;
    Some(world)
}

pub(crate) fn run(machine: &Machine, runner: &mut Runner) {
    if images::previous_checkout().is_none() {
        runner.note(
            "PREVIOUS=DIR is not given: each upgrade and roll-back of the daemon is between two copies of this build, under two names. \
             They show the steps, not that one version reads what another one has left",
        );
    }
    let Some(mut world) = prepare(machine, runner) else { return };
    let world = &mut world;
    runner.check("only_root_gets_the_node_credential", || clients::node_credential(world));
    runner.check("exec_logs_and_port_forward_pass", || clients::streams(world));
    runner.check("killed_weir_restarts_and_kube_proxy_continues", || world.killed());
    runner.check("link_is_cut", || offline::cut(world));
    runner.check("offline_crashed_containers_start_again", || offline::crashed_containers(world));
    runner.check("offline_restarted_kubelet_starts_containers", || offline::restarted_kubelet(world));
    runner.check("offline_power_cycle_brings_all_containers_back", || offline::power_cycle(world));
    runner.check("mended_link_resurrects_nothing_and_no_old_address", || offline::mended(world));
    runner.check("a_neighbour_joins", || neighbour::joins(world));
    runner.check("a_node_without_its_uplink_stays_ready_through_the_neighbour", || neighbour::relays(world));
    runner.check("offline_services_lead_to_the_new_addresses_of_a_neighbours_pods", || neighbour::reports(world));
    runner.check("the_operator_sets_the_tolerations_of_an_annotated_node", || autonomy::begins(world));
    runner.check("offline_pods_of_an_annotated_node_keep_their_containers", || autonomy::stays(world));
    runner.check("offline_pods_of_a_plain_node_are_evicted", || autonomy::evicted(world));
    runner.check("the_first_day_of_a_static_pod_is_as_the_pages_say", || first_day::static_pod(world));
    runner.check("a_static_pod_is_removed_as_the_page_says", || first_day::without_static_pod(world));
    runner.check("deploy_is_applied_unchanged_and_ready", || world.daemon_set());
    runner.check("replaced_weir_serves_without_another_approval", || world.replaced());
    runner.check("upgrade_keeps_disk_certificate_and_clients", || upgrade::replaced_by_the_next_version(world));
    runner.check("the_first_day_is_as_its_page_says", || first_day::follow(world));
    runner.check("node_ports_follow_annotation_label_and_config_map", || rules::node_ports(world));
    runner.check("a_pod_of_the_daemon_set_explains_it_too", || rules::explained(world));
    runner.check("topology_follows_annotation_and_pool", || rules::topology(world));
    runner.check("the_daemon_set_is_removed_as_the_page_says", || first_day::without_daemon_set(world));
    runner.check("a_unit_is_installed_rolled_back_and_removed_as_the_pages_say", || unit::follow(world));
    runner.check("the_chart_is_installed_rolled_back_and_removed_as_its_pages_say", || first_day::chart(world));
    yurthub::run(world, runner);
}

impl World<'_> {
    /// A page of `deploy/`, for the administrator of this cluster.
    fn page(&self, file: &str) -> Guide {
        Guide::of(file, &self.cloud.file("admin.kubeconfig"))
    }

    /// The page that installs Weir, with the names of this cluster.
    fn readme(&self) -> Guide {
        self.page("README.md")
            .replacing("https://10.0.0.1:6443", &format!("https://{SERVER_NAME}:6443"))
            .replacing("APISERVER", SERVER_NAME)
            .replacing("registry.example/weir", "weir")
    }

    /// Waits until kubelet has reported Ready after this time.
    fn ready_since(&self, before: &str) {
        self.admin.wait("the node is Ready", &["get", "node", NODE], |node| {
            let conditions = node["status"]["conditions"].as_array()?;
            let ready = conditions.iter().find(|one| one["type"] == "Ready")?;
            (ready["status"] == "True" && ready["lastHeartbeatTime"].as_str()? > before).then_some(())
        });
    }

    /// The time of kubelet's last report.
    fn heartbeat(admin: &Kubectl) -> String {
        let node = admin.json(&["get", "node", NODE]).unwrap();
        let conditions = node["status"]["conditions"].as_array().unwrap();
        let ready = conditions.iter().find(|one| one["type"] == "Ready").unwrap();
        ready["lastHeartbeatTime"].as_str().unwrap().to_owned()
    }

    fn by_node_credential(&self) {
        let guide = self.readme().replacing("clients/kubelet.conf", "clients/kubelet-node-credential.conf");
        guide.follow("Permissions and filters");
        guide.follow("Weir's own credential");
        guide.follow("Static pod");
        // With the other node as its peer.
        std::fs::write("/etc/kubernetes/manifests/weir.yaml", cluster::static_pod()).unwrap();
        guide.follow("kubelet");
        self.ready_since("");
        self.weir_is_ready();
    }

    fn by_certificate(&self) {
        let before = Self::heartbeat(&self.admin);
        self.readme().follow("kubelet");
        self.ready_since(&before);
    }

    /// Waits until exactly one daemon pod is Ready.
    fn weir_is_ready(&self) -> String {
        self.admin.wait("Weir's pod is Ready", WEIR_PODS, |pods| {
            let [pod] = pods["items"].as_array()?.as_slice() else { return None };
            let name = pod["metadata"]["name"].as_str()?.to_owned();
            (holds(pod, "Ready") && pod["metadata"]["deletionTimestamp"].is_null()).then_some(name)
        })
    }

    /// Waits for exactly one open request for a serving certificate. Returns its name and its requester.
    fn wait_for_open_request(&self) -> (String, String) {
        self.admin.wait("a certificate request exists", &["get", "certificatesigningrequests"], |requests| {
            let mut open = items(requests).iter().filter(|one| one["status"] == serde_json::json!({}));
            let (Some(request), None) = (open.next(), open.next()) else { return None };
            let text = |value: &Value| value.as_str().map(str::to_owned);
            Some((text(&request["metadata"]["name"])?, text(&request["spec"]["username"])?))
        })
    }

    /// Approves that request, and waits until Weir serves the issued certificate.
    fn approve(&self, asks: &str) {
        let (name, user) = self.wait_for_open_request();
        assert_eq!(user, asks);
        self.readme().replacing("weir-NODE-…", &name).follow("The serving certificate");
        until("the HTTPS port shows its certificate", || self.weir().attempt(&["get", "--raw", "/version"]));
    }

    /// kubectl as the administrator, by token, through Weir's HTTPS port.
    fn weir(&self) -> Kubectl {
        let nobody = self.machine.folder("operator").join("kubeconfig");
        std::fs::write(&nobody, "{apiVersion: v1, kind: Config}").unwrap();
        Kubectl::new(&nobody).with(&[
            format!("--server={}", crate::WEIR),
            format!("--certificate-authority={}", self.cloud.file("ca.crt").display()),
            format!("--token={}", self.cloud.read("admin.token")),
        ])
    }

    /// The number of certificate requests so far.
    fn requests(&self) -> usize {
        let all = self.admin.json(&["get", "certificatesigningrequests"]).unwrap();
        all["items"].as_array().map_or(0, Vec::len)
    }

    fn killed(&self) {
        let requests = self.requests();
        cluster::kill_container("weir");
        self.kube_proxy_follows();
        self.weir_is_ready();
        assert_eq!(self.requests(), requests, "no other certificate was requested");
    }

    fn daemon_set(&self) {
        self.readme().follow("DaemonSet");
        // The pod is replaced before the approval. Its successor resumes the same request.
        let requests = self.wait_for_open_request();
        self.replace_weir();
        assert_eq!(self.wait_for_open_request(), requests, "one request, and the same");
        self.approve(ACCOUNT);
        clients::point_at_weir(self);
        self.kube_proxy_follows();
    }

    fn replace_weir(&self) {
        let old = self.weir_is_ready();
        self.admin.run(&["-n", "kube-system", "delete", "pod", &old]);
        assert_ne!(self.weir_is_ready(), old);
    }

    fn replaced(&self) {
        let requests = self.requests();
        self.replace_weir();
        self.kube_proxy_follows();
        assert_eq!(self.requests(), requests, "no other certificate was requested");
    }

    /// Changes an endpoint and waits until kube-proxy's rules contain it.
    fn kube_proxy_follows(&self) {
        rules::moved_endpoint(self);
    }
}

/// The items of a list.
fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}
