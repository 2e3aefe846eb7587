package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// rules is a configuration of the bundled filters, with a plain model of their effect, written from their
// documentation.
type rules struct {
	discard, isolation, topology, endpoints, inCluster bool
	// Settings.
	keepBalancers, drop, lists bool
	source                     string
	// only is the component whose reads each filter matches; where it is empty, those of all.
	only struct{ discard, isolation, topology, endpoints, inCluster string }
	// generation numbers the configurations of a run.
	generation int
}

const (
	poolLabel    = "apps.openyurt.io/nodepool"
	bucketLabel  = "openyurt.io/pool-name"
	listen       = "nodeport.openyurt.io/listen"
	topologyKeys = "openyurt.io/topologyKeys"
	skipDiscard  = "openyurt.io/skip-discard"
	askDiscard   = "svc.openyurt.io/discard"
)

// Components of the clients whose caches are compared.
const (
	protobufReader = "reader-protobuf"
	jsonReader     = "reader-json"
	metadataReader = "reader-metadata"
)

func randomRules(random *rand.Rand) rules {
	most := func() bool { return random.IntN(4) > 0 }
	some := func() string {
		return []string{"", "", "", protobufReader, jsonReader, metadataReader}[random.IntN(6)]
	}
	r := rules{
		discard: most(), isolation: most(), topology: most(), endpoints: most(), inCluster: most(),
		keepBalancers: !most(), drop: random.IntN(2) == 0, lists: most(),
		source: []string{"nodepools", "nodebuckets", "nodelabels"}[random.IntN(3)],
	}
	r.only.discard, r.only.isolation, r.only.topology = some(), some(), some()
	r.only.endpoints, r.only.inCluster = some(), some()
	return r
}

// of returns the rules as a client of this component is shown them.
func (r rules) of(component string) rules {
	matches := func(only string) bool { return only == "" || only == component }
	r.discard = r.discard && matches(r.only.discard)
	r.isolation = r.isolation && matches(r.only.isolation)
	r.topology = r.topology && matches(r.only.topology)
	r.endpoints = r.endpoints && matches(r.only.endpoints)
	r.inCluster = r.inCluster && matches(r.only.inCluster)
	return r
}

// mark is a match rule that matches no client. Weir reports it on its admin port once this configuration is in force.
func (r rules) mark() string { return fmt.Sprintf("generation-%d/services", r.generation) }

// manifest returns Weir's configuration.
func (r rules) manifest() string {
	var text strings.Builder
	text.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: weir-filters, namespace: kube-system}\ndata:\n" +
		"  filters.yaml: |\n    filters:\n")
	filter := func(wanted bool, name, only, resource, settings string) {
		if wanted {
			fmt.Fprintf(&text, "    - {name: %[1]s, module: %[1]s.wasm, match: ['%[2]s/%[3]s'], settings: {%[4]s}}\n",
				name, cmp.Or(only, "*"), resource, settings)
		}
	}
	when := func(condition bool, yes, no string) string {
		if condition {
			return yes
		}
		return no
	}
	source := "poolSource: " + r.source
	filter(r.discard, "discardcloudservice", r.only.discard, "services", "loadBalancers: "+when(r.keepBalancers, "keep", "discard"))
	filter(r.isolation, "nodeportisolation", r.only.isolation, "services", "whenClosed: "+when(r.drop, "drop", "clusterip"))
	filter(r.topology, "servicetopology", r.only.topology, "endpointslices", fmt.Sprintf("%s, preferenceLists: %v", source, r.lists))
	filter(r.endpoints, "endpoints", r.only.endpoints, "endpoints", source)
	filter(r.inCluster, "inclusterconfig", r.only.inCluster, "configmaps", "")
	fmt.Fprintf(&text, "    - {name: mark, module: discardcloudservice.wasm, match: [%s]}\n", r.mark())
	return text.String()
}

// world is the cluster without filters.
type world struct {
	node                                    string
	services, slices, nodes, pools, buckets *source
}

// shown returns the object that a client behind the filters must hold; nil if it is hidden.
func (r rules) shown(w *world, object runtime.Object) runtime.Object {
	object = object.DeepCopyObject()
	keep := true
	switch object := object.(type) {
	case *core.Service:
		keep = r.service(w, object)
	case *discovery.EndpointSlice:
		r.slice(w, object)
	case *core.Endpoints:
		keep = r.cutEndpoints(w, object)
	case *core.ConfigMap:
		r.configMap(object)
	}
	if !keep {
		return nil
	}
	return object
}

func (r rules) service(w *world, service *core.Service) bool {
	kind := service.Spec.Type
	if r.discard {
		if service.Namespace == "kube-system" && service.Name == "x-tunnel-server-internal-svc" {
			return false
		}
		if kind == core.ServiceTypeLoadBalancer {
			if r.keepBalancers && service.Annotations[askDiscard] == "true" {
				return false
			}
			if !r.keepBalancers && service.Annotations[skipDiscard] != "true" {
				return false
			}
		}
	}
	if !r.isolation || kind != core.ServiceTypeNodePort && kind != core.ServiceTypeLoadBalancer {
		return true
	}
	value, asked := service.Annotations[listen]
	pool := w.pool()
	if !asked || pool == "" || open(value, pool) {
		return true
	}
	if r.drop {
		return false
	}
	if kind == core.ServiceTypeNodePort {
		service.Spec.Type = core.ServiceTypeClusterIP
		if len(service.Spec.ExternalIPs) == 0 {
			service.Spec.ExternalTrafficPolicy = ""
		}
	} else {
		service.Spec.AllocateLoadBalancerNodePorts = new(bool)
		service.Spec.HealthCheckNodePort = 0
	}
	for i := range service.Spec.Ports {
		service.Spec.Ports[i].NodePort = 0
	}
	return true
}

// open returns whether node ports are open in a pool.
func open(value, pool string) bool {
	says := map[string]bool{}
	for item := range strings.SplitSeq(value, ",") {
		item = strings.TrimSpace(item)
		name, refused := strings.CutPrefix(item, "-")
		if _, decided := says[name]; name != "" && !decided {
			says[name] = !refused
		}
	}
	if answer, named := says[pool]; named {
		return answer
	}
	return says["*"]
}

// pool returns the local node's pool; empty without one.
func (w *world) pool() string {
	node, ok := w.nodes.get(w.node).(*core.Node)
	if !ok {
		return ""
	}
	return node.Labels[poolLabel]
}

// members returns the nodes of the local pool, and whether the pool is known.
func (w *world) members(source string) (map[string]bool, bool) {
	pool := w.pool()
	if pool == "" {
		return nil, false
	}
	members, known := map[string]bool{}, false
	switch source {
	case "nodepools":
		if object, ok := w.pools.get(pool).(*unstructured.Unstructured); ok {
			known = true
			names, _, _ := unstructured.NestedStringSlice(object.Object, "status", "nodes")
			for _, name := range names {
				members[name] = true
			}
		}
	case "nodebuckets":
		for _, object := range w.buckets.all() {
			bucket := object.(*unstructured.Unstructured)
			if bucket.GetLabels()[bucketLabel] != pool {
				continue
			}
			known = true
			nodes, _, _ := unstructured.NestedSlice(bucket.Object, "nodes")
			for _, node := range nodes {
				name, _, _ := unstructured.NestedString(node.(map[string]any), "name")
				members[name] = true
			}
		}
	case "nodelabels":
		for name, object := range w.nodes.all() {
			if object.(*core.Node).Labels[poolLabel] == pool {
				known = true
				members[name] = true
			}
		}
	}
	return members, known
}

func (r rules) slice(w *world, slice *discovery.EndpointSlice) {
	name := slice.Labels[discovery.LabelServiceName]
	if !r.topology || name == "" {
		return
	}
	service, ok := w.services.get(slice.Namespace + "/" + name).(*core.Service)
	if !ok {
		return
	}
	keep := r.choose(w, slice.Namespace, name, service.Annotations[topologyKeys])
	if keep == nil {
		return
	}
	kept := []discovery.Endpoint{}
	for _, endpoint := range slice.Endpoints {
		if endpoint.NodeName != nil && keep(*endpoint.NodeName) {
			kept = append(kept, endpoint)
		}
	}
	slice.Endpoints = kept
}

// choose returns a predicate of the nodes whose endpoints stay; nil if all stay, including those without a node.
func (r rules) choose(w *world, namespace, service, value string) func(string) bool {
	var wanted []func(string) bool
	isList := strings.Contains(value, ",")
	for item := range strings.SplitSeq(value, ",") {
		if isList {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
		}
		switch item {
		case "kubernetes.io/hostname":
			wanted = append(wanted, func(node string) bool { return node == w.node })
		case "openyurt.io/nodepool", "openyurt.io/zone", "kubernetes.io/zone":
			members, known := w.members(r.source)
			if known {
				wanted = append(wanted, func(node string) bool { return members[node] })
			} else {
				wanted = append(wanted, nil)
			}
		case "*":
			wanted = append(wanted, nil)
		default:
			return nil
		}
	}
	switch {
	case len(wanted) == 0 || len(wanted) > 1 && !r.lists:
		return nil
	case len(wanted) == 1:
		return wanted[0]
	}
	for _, keep := range wanted {
		if keep == nil || w.leavesReady(namespace, service, keep) {
			return keep
		}
	}
	return wanted[len(wanted)-1]
}

func (w *world) leavesReady(namespace, service string, keep func(string) bool) bool {
	for _, object := range w.slices.all() {
		slice := object.(*discovery.EndpointSlice)
		if slice.Namespace != namespace || slice.Labels[discovery.LabelServiceName] != service {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			if ready && endpoint.NodeName != nil && keep(*endpoint.NodeName) {
				return true
			}
		}
	}
	return false
}

func (r rules) cutEndpoints(w *world, endpoints *core.Endpoints) bool {
	if !r.endpoints || w.services.get(endpoints.Namespace+"/"+endpoints.Name) == nil {
		return true
	}
	members, known := w.members(r.source)
	if !known {
		return true
	}
	cut := func(addresses []core.EndpointAddress) []core.EndpointAddress {
		var kept []core.EndpointAddress
		for _, address := range addresses {
			if address.NodeName != nil && members[*address.NodeName] {
				kept = append(kept, address)
			}
		}
		return kept
	}
	var subsets []core.EndpointSubset
	for _, subset := range endpoints.Subsets {
		subset.Addresses, subset.NotReadyAddresses = cut(subset.Addresses), cut(subset.NotReadyAddresses)
		if len(subset.Addresses)+len(subset.NotReadyAddresses) > 0 {
			subsets = append(subsets, subset)
		}
	}
	endpoints.Subsets = subsets
	return len(subsets) > 0
}

func (r rules) configMap(object *core.ConfigMap) {
	config, ok := object.Data["config.conf"]
	if !r.inCluster || !ok || object.Namespace != "kube-system" || object.Name != "kube-proxy" {
		return
	}
	lines := strings.Split(config, "\n")
	for i, line := range lines {
		text := strings.TrimLeft(line, " ")
		if value, ok := strings.CutPrefix(text, "kubeconfig: "); ok && value != "" {
			lines[i] = line[:len(line)-len(text)] + "#" + text
		}
	}
	object.Data["config.conf"] = strings.Join(lines, "\n")
}
