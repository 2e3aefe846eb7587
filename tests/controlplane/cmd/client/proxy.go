package main

import (
	"context"
	"fmt"
	"strings"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

const (
	town      = "kube-proxy"
	ownPool   = "proxy-own"
	otherPool = "proxy-other"
)

// proxyCluster is the cluster of the kube-proxy test.
type proxyCluster struct {
	typed   kubernetes.Interface
	untyped dynamic.Interface
	node    string
}

// everywhere is the text for all endpoints of a service.
const everywhere = " to 10.244.1.1 10.244.2.1 10.244.3.1"

// proxyRules asserts the effect of node port isolation and service topology in kube-proxy's maps and in the rules of
// its iptables proxier, while annotations and pools change. Weir runs on a node whose pool the test changes.
func proxyRules(ctx context.Context, s *sides) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	straight, err := typed(s.straight())
	if err != nil {
		return err
	}
	custom, err := untyped(s.straight())
	if err != nil {
		return err
	}
	cluster := &proxyCluster{straight, custom, s.node}
	if err := cluster.build(ctx); err != nil {
		return err
	}
	client, err := typed(s.through(s.weir, "kube-proxy", protobuf))
	if err != nil {
		return err
	}
	tracked := newTracked(s.node)
	written, proxier, err := startProxier(ctx, s.node)
	if err != nil {
		return err
	}
	connectProxy(ctx, client, tracked, proxier)
	for _, step := range cluster.steps() {
		if err := step.change(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		for name, rule := range step.rules {
			err := eventually(ctx, func() error {
				if is := tracked.rule(town, name); is != rule {
					return fmt.Errorf("%s: the rule for %s is %q, expected %q", step.name, name, is, rule)
				}
				if is := written.rule(town, name); is != rule {
					return fmt.Errorf("%s: the rules written for %s are %q, expected %q:\n%s", step.name, name, is, rule, written.lines(town, name))
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		fmt.Printf("%s: as expected\n", step.name)
	}
	return nil
}

// step is a change of the cluster and the expected rules.
type step struct {
	name   string
	change func(context.Context) error
	rules  map[string]string
}

func (c *proxyCluster) steps() []step {
	nothing := func(context.Context) error { return nil }
	return []step{
		{"at first", nothing, map[string]string{
			"open": "cluster IP, node port" + everywhere, "closed": "cluster IP" + everywhere,
			"plain": "cluster IP, node port" + everywhere, "balanced": "cluster IP, balancer" + everywhere,
			"near": "cluster IP to 10.244.1.1 10.244.2.1", "here": "cluster IP to 10.244.1.1",
			"anywhere": "cluster IP" + everywhere,
		}},
		{"a port is opened", c.listens("closed", ownPool), map[string]string{"closed": "cluster IP, node port" + everywhere}},
		{"a port is closed", c.listens("open", otherPool), map[string]string{"open": "cluster IP" + everywhere}},
		{"a port is for all but this pool", c.listens("open", "-"+ownPool+",*"), map[string]string{"open": "cluster IP" + everywhere}},
		{"the pool loses a node", c.members(ownPool, c.node), map[string]string{"near": "cluster IP to 10.244.1.1"}},
		{"the node moves to the other pool", c.moves(otherPool), map[string]string{
			"open": "cluster IP, node port" + everywhere, "closed": "cluster IP" + everywhere,
			"near": "cluster IP to 10.244.3.1", "here": "cluster IP to 10.244.1.1",
			"balanced": "cluster IP, node port, health check, balancer" + everywhere,
		}},
		{"the node leaves its pool", c.moves(""), map[string]string{
			"open": "cluster IP, node port" + everywhere, "closed": "cluster IP, node port" + everywhere,
			"near": "cluster IP" + everywhere,
		}},
	}
}

func (c *proxyCluster) build(ctx context.Context) error {
	namespace := &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: town}}
	if _, err := c.typed.CoreV1().Namespaces().Create(ctx, namespace, meta.CreateOptions{}); err != nil {
		return err
	}
	node := &core.Node{ObjectMeta: meta.ObjectMeta{Name: c.node, Labels: map[string]string{poolLabel: ownPool}}}
	if _, err := c.typed.CoreV1().Nodes().Create(ctx, node, meta.CreateOptions{}); err != nil {
		return err
	}
	for pool, nodes := range map[string][]string{ownPool: {c.node, "proxy-b"}, otherPool: {"proxy-c"}} {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion("apps.openyurt.io/v1beta2")
		object.SetKind("NodePool")
		object.SetName(pool)
		if _, err := c.untyped.Resource(poolResource).Create(ctx, object, meta.CreateOptions{}); err != nil {
			return err
		}
		if err := c.members(pool, nodes...)(ctx); err != nil {
			return err
		}
	}
	for _, service := range []struct {
		name, annotation, value string
		kind                    core.ServiceType
	}{
		{"open", listen, ownPool, core.ServiceTypeNodePort},
		{"closed", listen, otherPool, core.ServiceTypeNodePort},
		{"plain", "", "", core.ServiceTypeNodePort},
		{"balanced", listen, otherPool, core.ServiceTypeLoadBalancer},
		{"near", topologyKeys, "openyurt.io/nodepool", core.ServiceTypeClusterIP},
		{"here", topologyKeys, "kubernetes.io/hostname", core.ServiceTypeClusterIP},
		{"anywhere", "", "", core.ServiceTypeClusterIP},
	} {
		object := &core.Service{ObjectMeta: meta.ObjectMeta{Name: service.name, Namespace: town}}
		if service.annotation != "" {
			object.Annotations = map[string]string{service.annotation: service.value, skipDiscard: "true"}
		}
		object.Spec.Type = service.kind
		object.Spec.Ports = []core.ServicePort{{Name: "http", Port: 80}}
		if service.kind == core.ServiceTypeLoadBalancer {
			object.Spec.ExternalTrafficPolicy = core.ServiceExternalTrafficPolicyLocal
		}
		created, err := c.typed.CoreV1().Services(town).Create(ctx, object, meta.CreateOptions{})
		if err != nil {
			return err
		}
		if service.kind == core.ServiceTypeLoadBalancer {
			created.Status.LoadBalancer.Ingress = []core.LoadBalancerIngress{{IP: "203.0.113.9"}}
			if _, err := c.typed.CoreV1().Services(town).UpdateStatus(ctx, created, meta.UpdateOptions{}); err != nil {
				return err
			}
		}
		if err := c.slice(ctx, service.name); err != nil {
			return err
		}
	}
	return nil
}

func (c *proxyCluster) slice(ctx context.Context, service string) error {
	name, port, ready := "http", int32(8080), true
	protocol := core.ProtocolTCP
	object := &discovery.EndpointSlice{
		ObjectMeta: meta.ObjectMeta{
			Name: service + "-1", Namespace: town, Labels: map[string]string{discovery.LabelServiceName: service},
		},
		AddressType: discovery.AddressTypeIPv4,
		Ports:       []discovery.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	for i, node := range []string{c.node, "proxy-b", "proxy-c"} {
		object.Endpoints = append(object.Endpoints, discovery.Endpoint{
			Addresses: []string{fmt.Sprintf("10.244.%d.1", i+1)}, NodeName: &node,
			Conditions: discovery.EndpointConditions{Ready: &ready},
		})
	}
	_, err := c.typed.DiscoveryV1().EndpointSlices(town).Create(ctx, object, meta.CreateOptions{})
	return err
}

func (c *proxyCluster) listens(service, pools string) func(context.Context) error {
	return func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, listen, pools)
		_, err := c.typed.CoreV1().Services(town).Patch(ctx, service, types.MergePatchType, patch, meta.PatchOptions{})
		return err
	}
}

func (c *proxyCluster) members(pool string, nodes ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"status":{"nodes":["%s"]}}`, strings.Join(nodes, `","`))
		_, err := c.untyped.Resource(poolResource).Patch(ctx, pool, types.MergePatchType, patch, meta.PatchOptions{}, "status")
		return err
	}
}

func (c *proxyCluster) moves(pool string) func(context.Context) error {
	return func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, poolLabel, pool)
		_, err := c.typed.CoreV1().Nodes().Patch(ctx, c.node, types.MergePatchType, patch, meta.PatchOptions{})
		return err
	}
}
