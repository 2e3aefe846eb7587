package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"weir/controlplane/internal/record"
)

var (
	poolResource   = schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1beta2", Resource: "nodepools"}
	bucketResource = schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1alpha1", Resource: "nodebuckets"}
)

// mutator makes random changes. Equal seeds give equal changes.
type mutator struct {
	*rand.Rand
	node    string
	typed   kubernetes.Interface
	untyped dynamic.Interface
	weir    kubernetes.Interface
	pools   []string
	// own are the pods of the node; nil where the run is not their kubelet.
	own      *pods
	record   *record.Record
	accepted int
	refused  int
}

const (
	space    = "converge"
	services = 24
)

// one makes one change. A refused change (a conflict, a second creation, an invalid value) counts as none.
func (m *mutator) one(ctx context.Context) error {
	kinds := []struct {
		weight int
		change func(context.Context) error
	}{
		{30, m.service}, {30, m.slice}, {12, m.endpoints}, {6, m.anyNode}, {5, m.pool}, {5, m.bucket},
		{8, m.configMap}, {4, m.writeBack},
	}
	total := 0
	for _, kind := range kinds {
		total += kind.weight
	}
	pick := m.IntN(total)
	for _, kind := range kinds {
		if pick -= kind.weight; pick >= 0 {
			continue
		}
		err := kind.change(ctx)
		m.record.Line(operations, "result: %v", err)
		switch {
		case err == nil:
			m.accepted++
		case apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsConflict(err),
			apierrors.IsInvalid(err), apierrors.IsForbidden(err):
			m.refused++
		default:
			return err
		}
		return nil
	}
	return nil
}

func pickOf[T any](m *mutator, from ...T) T { return from[m.IntN(len(from))] }

// store replaces, creates or deletes an object, mostly the first if it exists.
func store[T any](ctx context.Context, m *mutator, name string, object T,
	create, update func(context.Context, T) error, remove func(context.Context, string, meta.DeleteOptions) error,
) error {
	if m.IntN(6) == 0 {
		m.record.Line(operations, "delete %T %s", object, name)
		return remove(ctx, name, meta.DeleteOptions{})
	}
	m.record.Object(operations, "store", object)
	err := update(ctx, object)
	if apierrors.IsNotFound(err) {
		return create(ctx, object)
	}
	return err
}

func (m *mutator) metadata(name string) meta.ObjectMeta {
	return meta.ObjectMeta{
		Name: name, Namespace: space, Annotations: map[string]string{},
		Labels: map[string]string{"turn": fmt.Sprint(m.IntN(1000))},
	}
}

func (m *mutator) service(ctx context.Context) error {
	object := &core.Service{ObjectMeta: m.metadata(fmt.Sprintf("svc-%d", m.IntN(services)))}
	object.Spec.Type = pickOf(m, core.ServiceTypeClusterIP, core.ServiceTypeNodePort, core.ServiceTypeNodePort,
		core.ServiceTypeLoadBalancer)
	for i := range 1 + m.IntN(3) {
		// Names come and go: a renamed port of a hidden service must not stay behind under its old name.
		name := fmt.Sprintf("%s-%d", pickOf(m, "http", "web", "admin"), i)
		object.Spec.Ports = append(object.Spec.Ports, core.ServicePort{
			Name: name, Port: int32(80 + i), TargetPort: intstr.FromInt32(int32(8000 + m.IntN(10))),
		})
	}
	if object.Spec.Type != core.ServiceTypeClusterIP && m.IntN(3) == 0 {
		object.Spec.ExternalTrafficPolicy = core.ServiceExternalTrafficPolicyLocal
	}
	if m.IntN(6) == 0 {
		object.Spec.ExternalIPs = []string{"203.0.113.7"}
	}
	if m.IntN(3) > 0 {
		object.Annotations[listen] = pickOf(m, "", "*", m.pools[0], "-"+m.pools[0]+",*", m.pools[1], "-*", " , -",
			m.pools[0]+", -"+m.pools[1])
	}
	if m.IntN(3) > 0 {
		object.Annotations[topologyKeys] = pickOf(m, "kubernetes.io/hostname", "openyurt.io/nodepool", "openyurt.io/zone",
			"kubernetes.io/hostname, openyurt.io/nodepool, *", "openyurt.io/nodepool,*", "*", "other", "")
	}
	if m.IntN(4) == 0 {
		object.Annotations[skipDiscard] = pickOf(m, "true", "True")
	}
	if m.IntN(4) == 0 {
		object.Annotations[askDiscard] = "true"
	}
	all := m.typed.CoreV1().Services(space)
	return store(ctx, m, object.Name, object,
		func(ctx context.Context, object *core.Service) error {
			_, err := all.Create(ctx, object, meta.CreateOptions{})
			return err
		},
		func(ctx context.Context, object *core.Service) error {
			_, err := all.Update(ctx, object, meta.UpdateOptions{})
			return err
		}, all.Delete)
}

func (m *mutator) anyNodeName() string {
	return pickOf(m, m.node, m.node+"-1", m.node+"-2", m.node+"-3", m.node+"-4")
}

func (m *mutator) address() string { return fmt.Sprintf("10.244.%d.%d", m.IntN(4), 1+m.IntN(250)) }

func (m *mutator) slice(ctx context.Context) error {
	service := m.IntN(services)
	object := &discovery.EndpointSlice{
		ObjectMeta: m.metadata(fmt.Sprintf("svc-%d-%d", service, m.IntN(2))), AddressType: discovery.AddressTypeIPv4,
	}
	// Always or never: kube-proxy ignores a slice that loses its label, and keeps its endpoints.
	if m.IntN(10) > 0 {
		object.Labels[discovery.LabelServiceName] = fmt.Sprintf("svc-%d", service)
	} else {
		object.Name = fmt.Sprintf("loose-%d", service)
	}
	name, port := "http", int32(8080)
	object.Ports = []discovery.EndpointPort{{Name: &name, Port: &port}}
	for range m.IntN(6) {
		endpoint := discovery.Endpoint{Addresses: []string{m.address()}}
		if m.IntN(8) > 0 {
			node := m.anyNodeName()
			endpoint.NodeName = &node
		}
		if m.IntN(3) > 0 {
			ready := m.IntN(3) > 0
			endpoint.Conditions.Ready = &ready
		}
		object.Endpoints = append(object.Endpoints, endpoint)
	}
	for _, one := range m.own.some() {
		ready, no := one.state.ready, false
		object.Endpoints = append(object.Endpoints, discovery.Endpoint{
			Addresses: []string{one.state.address}, NodeName: &m.node, TargetRef: one.reference(),
			Conditions: discovery.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: &no},
		})
	}
	all := m.typed.DiscoveryV1().EndpointSlices(space)
	return store(ctx, m, object.Name, object,
		func(ctx context.Context, object *discovery.EndpointSlice) error {
			_, err := all.Create(ctx, object, meta.CreateOptions{})
			return err
		},
		func(ctx context.Context, object *discovery.EndpointSlice) error {
			_, err := all.Update(ctx, object, meta.UpdateOptions{})
			return err
		}, all.Delete)
}

func (m *mutator) endpoints(ctx context.Context) error {
	object := &core.Endpoints{ObjectMeta: m.metadata(fmt.Sprintf("svc-%d", m.IntN(services)))}
	for i := range m.IntN(3) {
		subset := core.EndpointSubset{Ports: []core.EndpointPort{{Name: "http", Port: int32(8080 + i)}}}
		for j := range 1 + m.IntN(4) {
			address := core.EndpointAddress{IP: fmt.Sprintf("10.244.%d.%d", i, 10+j)}
			if m.IntN(8) > 0 {
				node := m.anyNodeName()
				address.NodeName = &node
			}
			if m.IntN(4) > 0 {
				subset.Addresses = append(subset.Addresses, address)
			} else {
				subset.NotReadyAddresses = append(subset.NotReadyAddresses, address)
			}
		}
		for _, one := range m.own.some() {
			address := core.EndpointAddress{IP: one.state.address, NodeName: &m.node, TargetRef: one.reference()}
			if one.state.ready {
				subset.Addresses = append(subset.Addresses, address)
			} else {
				subset.NotReadyAddresses = append(subset.NotReadyAddresses, address)
			}
		}
		object.Subsets = append(object.Subsets, subset)
	}
	all := m.typed.CoreV1().Endpoints(space)
	return store(ctx, m, object.Name, object,
		func(ctx context.Context, object *core.Endpoints) error {
			_, err := all.Create(ctx, object, meta.CreateOptions{})
			return err
		},
		func(ctx context.Context, object *core.Endpoints) error {
			_, err := all.Update(ctx, object, meta.UpdateOptions{})
			return err
		}, all.Delete)
}

func (m *mutator) anyNode(ctx context.Context) error {
	object := &core.Node{ObjectMeta: m.metadata(m.anyNodeName())}
	object.Namespace = ""
	if m.IntN(4) > 0 {
		object.Labels[poolLabel] = pickOf(m, m.pools...)
	}
	all := m.typed.CoreV1().Nodes()
	return store(ctx, m, object.Name, object,
		func(ctx context.Context, object *core.Node) error {
			_, err := all.Create(ctx, object, meta.CreateOptions{})
			return err
		},
		func(ctx context.Context, object *core.Node) error {
			_, err := all.Update(ctx, object, meta.UpdateOptions{})
			return err
		},
		func(ctx context.Context, name string, options meta.DeleteOptions) error {
			// The same holds for this node.
			if name == m.node {
				return nil
			}
			return all.Delete(ctx, name, options)
		})
}

// custom stores an object whose update must name the current resourceVersion.
func (m *mutator) custom(ctx context.Context, resource schema.GroupVersionResource, object *unstructured.Unstructured,
	subresources ...string,
) error {
	all := m.untyped.Resource(resource)
	// What a filter makes of a pool that is gone depends on what it was when the filter read it last.
	if m.IntN(6) == 0 && resource != poolResource && !strings.HasSuffix(object.GetName(), firstBucket) {
		m.record.Line(operations, "delete %s %s", object.GetKind(), object.GetName())
		return all.Delete(ctx, object.GetName(), meta.DeleteOptions{})
	}
	m.record.Object(operations, "store", object)
	is, err := all.Get(ctx, object.GetName(), meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		is, err = all.Create(ctx, object, meta.CreateOptions{})
	}
	if err != nil {
		return err
	}
	object.SetResourceVersion(is.GetResourceVersion())
	_, err = all.Update(ctx, object, meta.UpdateOptions{}, subresources...)
	return err
}

func (m *mutator) nodeNames() []any {
	var names []any
	for _, name := range []string{m.node, m.node + "-1", m.node + "-2", m.node + "-3", m.node + "-4"} {
		if m.IntN(2) == 0 {
			names = append(names, name)
		}
	}
	return names
}

func (m *mutator) pool(ctx context.Context) error {
	object := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"nodes": m.nodeNames()}}}
	object.SetAPIVersion("apps.openyurt.io/v1beta2")
	object.SetKind("NodePool")
	object.SetName(pickOf(m, m.pools...))
	return m.custom(ctx, poolResource, object, "status")
}

// How the name of a bucket ends that stays.
const firstBucket = "-first-bucket"

func (m *mutator) bucket(ctx context.Context) error {
	nodes := m.nodeNames()
	for i, name := range nodes {
		nodes[i] = map[string]any{"name": name}
	}
	object := &unstructured.Unstructured{Object: map[string]any{"nodes": nodes}}
	object.SetAPIVersion("apps.openyurt.io/v1alpha1")
	object.SetKind("NodeBucket")
	// The first bucket of a pool stays where it is, the others come to it, move and go.
	pool := pickOf(m, m.pools...)
	object.SetName(pool + firstBucket)
	_, err := m.untyped.Resource(bucketResource).Get(ctx, pool+firstBucket, meta.GetOptions{})
	if err == nil && m.IntN(4) != 0 {
		object.SetName(fmt.Sprintf("%s-bucket-%d", space, m.IntN(4)))
	}
	object.SetLabels(map[string]string{bucketLabel: pool})
	return m.custom(ctx, bucketResource, object)
}

func (m *mutator) configMap(ctx context.Context) error {
	object := &core.ConfigMap{ObjectMeta: m.metadata(fmt.Sprintf("config-%d", m.IntN(8)))}
	if m.IntN(2) == 0 {
		object.Name, object.Namespace = "kube-proxy", "kube-system"
	}
	lines := []string{"mode: iptables", "clientConnection:", pickOf(m, "  kubeconfig: /var/lib/kubeconfig.conf",
		"  #kubeconfig: /var/lib/kubeconfig.conf", "  qps: 5"), fmt.Sprintf("turn: %d", m.IntN(1000)), ""}
	object.Data = map[string]string{pickOf(m, "config.conf", "config.conf", "other"): strings.Join(lines, "\n")}
	all := m.typed.CoreV1().ConfigMaps(object.Namespace)
	return store(ctx, m, object.Name, object,
		func(ctx context.Context, object *core.ConfigMap) error {
			_, err := all.Create(ctx, object, meta.CreateOptions{})
			return err
		},
		func(ctx context.Context, object *core.ConfigMap) error {
			_, err := all.Update(ctx, object, meta.UpdateOptions{})
			return err
		}, all.Delete)
}

// writeBack does what many clients do: it reads through Weir, changes one field, and writes the complete object.
func (m *mutator) writeBack(ctx context.Context) error {
	all := m.weir.CoreV1().Services(space)
	name, turn := fmt.Sprintf("svc-%d", m.IntN(services)), fmt.Sprint(m.IntN(1000))
	object, err := all.Get(ctx, name, meta.GetOptions{})
	if err != nil {
		return unlessCut(err)
	}
	if object.Labels == nil {
		object.Labels = map[string]string{}
	}
	object.Labels["written"] = turn
	m.record.Object(operations, "write back through Weir", object)
	_, err = all.Update(ctx, object, meta.UpdateOptions{})
	return unlessCut(err)
}

// unlessCut ignores errors that a cut connection or a failed filter may cause.
func unlessCut(err error) error {
	if err == nil || apierrors.ReasonForError(err) != meta.StatusReasonUnknown && !slices.Contains(
		[]meta.StatusReason{meta.StatusReasonInternalError, meta.StatusReasonServiceUnavailable, meta.StatusReasonTimeout},
		apierrors.ReasonForError(err)) {
		return err
	}
	return nil
}
