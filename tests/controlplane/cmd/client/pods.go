package main

import (
	"context"
	encoding "encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"weir/controlplane/internal/record"
)

// pods are those of the node. The run is their kubelet, which reports them through Weir, and the controllers, which write
// into EndpointSlices and Endpoints what the API server knows of them.
type pods struct {
	random *rand.Rand
	node   string
	// plane is the administrator's client, kubelet the one with the node credential, through Weir.
	plane, kubelet kubernetes.Interface
	all            []*pod
	next           int
	record         *record.Record

	reports, awaited, recreated int
}

// pod is one of them, as the API server has it.
type pod struct {
	name  string
	uid   types.UID
	state podState
	// said is what clients behind Weir see instead; nil if that is what the API server has.
	said *podState
}

// podState is what endpoints have of a pod.
type podState struct {
	address string
	ready   bool
	// awaited is whether kubelet has not reported the pod since the node was restarted.
	awaited bool
}

const podsOfNode = 6

// kubeletPatience is how long kubelet waits for an answer.
const kubeletPatience = 10 * time.Second

// newPods creates the pods. kubelet reports each of them once.
func newPods(ctx context.Context, random *rand.Rand, node string, plane, kubelet kubernetes.Interface, kept *record.Record) (*pods, error) {
	p := &pods{random: random, node: node, plane: plane, kubelet: kubelet, record: kept}
	for i := range podsOfNode {
		p.all = append(p.all, &pod{name: fmt.Sprintf("pod-%d", i)})
		if err := p.create(ctx, p.all[i]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// fresh returns the state of a pod with an address that none had before.
func (p *pods) fresh() podState {
	p.next++
	return podState{address: fmt.Sprintf("10.245.%d.%d", p.next/250, 1+p.next%250), ready: p.random.IntN(3) > 0}
}

func (p *pods) create(ctx context.Context, one *pod) error {
	object := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: one.name, Namespace: space}}
	object.Spec = core.PodSpec{NodeName: p.node, Containers: []core.Container{{Name: "one", Image: "none"}}}
	p.record.Line(operations, "create pod %s", one.name)
	created, err := p.plane.CoreV1().Pods(space).Create(ctx, object, meta.CreateOptions{})
	if err != nil {
		return err
	}
	one.uid, one.state, one.said = created.UID, podState{}, nil
	return p.accepted(ctx, one, p.fresh())
}

// report sends what kubelet sends: a strategic merge patch of the difference to what the API server has.
func (p *pods) report(ctx context.Context, one *pod, state podState) error {
	p.reports++
	ready := core.ConditionFalse
	if state.ready {
		ready = core.ConditionTrue
	}
	ips := []map[string]string{{"ip": state.address}}
	if one.state.address != "" && one.state.address != state.address {
		ips = append(ips, map[string]string{"$patch": "delete", "ip": one.state.address})
	}
	patch, err := encoding.Marshal(map[string]any{
		"metadata": map[string]any{"uid": one.uid},
		"status": map[string]any{
			"phase": core.PodRunning, "podIP": state.address, "podIPs": ips,
			"conditions": []map[string]any{{"type": core.PodReady, "status": ready}},
		},
	})
	if err != nil {
		return err
	}
	_, err = p.kubelet.CoreV1().Pods(space).Patch(ctx, one.name, types.StrategicMergePatchType, patch, meta.PatchOptions{}, "status")
	p.record.Line(operations, "kubelet reports %s: %s, result: %v", one.name, patch, err)
	return err
}

// accepted reports until the API server has taken it.
func (p *pods) accepted(ctx context.Context, one *pod, state podState) error {
	err := eventually(ctx, func() error { return p.report(ctx, one, state) })
	one.state, one.said = state, nil
	return err
}

// offline reports some pods while nobody takes it, and once more what was reported before: kubelet repeats itself.
func (p *pods) offline(ctx context.Context, r *run) error {
	for _, one := range p.all {
		if p.random.IntN(3) == 0 {
			state := p.fresh()
			one.said = &state
		}
	}
	for _, one := range p.all {
		if one.said == nil || one.said.awaited {
			continue
		}
		err := eventually(ctx, func() error {
			if err := p.report(ctx, one, *one.said); !apierrors.IsServiceUnavailable(err) {
				return fmt.Errorf("%s was reported offline: %v", one.name, err)
			}
			return p.kept(ctx, r, one)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// kept returns an error unless Weir shows what was reported: the pods of a daemon that has just started may still be on disk.
func (p *pods) kept(ctx context.Context, r *run, one *pod) error {
	body, err := r.adminPage(ctx, "/caches")
	if err != nil {
		return err
	}
	var caches struct {
		LocalStatus []struct {
			UID       types.UID
			Addresses []string
			Ready     bool
		}
	}
	if err := encoding.Unmarshal([]byte(body), &caches); err != nil {
		return err
	}
	for _, known := range caches.LocalStatus {
		if known.UID == one.uid && slices.Equal(known.Addresses, []string{one.said.address}) && known.Ready == one.said.ready {
			return nil
		}
	}
	return fmt.Errorf("%s is not kept: %s", one.name, body)
}

// rebooted is called when the node was restarted: no pod has the address that it had.
func (p *pods) rebooted() {
	for _, one := range p.all {
		p.awaited++
		one.said = &podState{address: one.state.address, awaited: true}
	}
}

// online reports what the API server has missed, and lets the controllers follow. Some pods were replaced meanwhile.
func (p *pods) online(ctx context.Context) error {
	for _, one := range p.all {
		if one.said == nil {
			continue
		}
		if p.random.IntN(6) == 0 {
			p.recreated++
			now := int64(0)
			p.record.Line(operations, "delete pod %s", one.name)
			err := p.plane.CoreV1().Pods(space).Delete(ctx, one.name, meta.DeleteOptions{GracePeriodSeconds: &now})
			if err != nil {
				return err
			}
			if err := p.create(ctx, one); err != nil {
				return err
			}
			continue
		}
		state := *one.said
		if state.awaited {
			state = p.fresh()
		}
		if err := p.accepted(ctx, one, state); err != nil {
			return err
		}
	}
	return p.control(ctx)
}

// control writes the state of the pods into all objects that name them.
func (p *pods) control(ctx context.Context) error {
	p.record.Line(operations, "the controllers write the state of the pods into slices and Endpoints")
	present := func(one *pod) *podState { return &one.state }
	all, err := p.plane.DiscoveryV1().EndpointSlices(space).List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		is := all.Items[i].DeepCopy()
		p.slice(is, present)
		if err := update(ctx, p.plane.DiscoveryV1().EndpointSlices(space), &all.Items[i], is); err != nil {
			return err
		}
	}
	endpoints, err := p.plane.CoreV1().Endpoints(space).List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	for i := range endpoints.Items {
		is := endpoints.Items[i].DeepCopy()
		p.endpoints(is, present)
		if err := update(ctx, p.plane.CoreV1().Endpoints(space), &endpoints.Items[i], is); err != nil {
			return err
		}
	}
	return nil
}

// update writes an object if it has changed.
func update[T any](ctx context.Context, client interface {
	Update(context.Context, T, meta.UpdateOptions) (T, error)
}, was, is T) error {
	if equality.Semantic.DeepEqual(was, is) {
		return nil
	}
	_, err := client.Update(ctx, is, meta.UpdateOptions{})
	return err
}

// shown returns an object as clients behind Weir see it, before all filters.
func (p *pods) shown(object runtime.Object) runtime.Object {
	if p == nil {
		return object
	}
	said := func(one *pod) *podState { return one.said }
	object = object.DeepCopyObject()
	switch object := object.(type) {
	case *discovery.EndpointSlice:
		p.slice(object, said)
	case *core.Endpoints:
		p.endpoints(object, said)
	}
	return object
}

func (p *pods) find(target *core.ObjectReference, of func(*pod) *podState) *podState {
	for _, one := range p.all {
		if target != nil && target.UID == one.uid {
			return of(one)
		}
	}
	return nil
}

func (p *pods) slice(slice *discovery.EndpointSlice, of func(*pod) *podState) {
	for i := range slice.Endpoints {
		endpoint := &slice.Endpoints[i]
		if state := p.find(endpoint.TargetRef, of); state != nil {
			ready := state.ready
			endpoint.Addresses = []string{state.address}
			endpoint.Conditions.Ready, endpoint.Conditions.Serving = &ready, &ready
		}
	}
}

func (p *pods) endpoints(endpoints *core.Endpoints, of func(*pod) *podState) {
	for i := range endpoints.Subsets {
		subset := &endpoints.Subsets[i]
		var ready, other []core.EndpointAddress
		moved := false
		put := func(addresses []core.EndpointAddress, was bool) {
			for _, address := range addresses {
				now := was
				if state := p.find(address.TargetRef, of); state != nil {
					now = state.ready
					moved = moved || now != was || address.IP != state.address
					address.IP = state.address
				}
				if now {
					ready = append(ready, address)
				} else {
					other = append(other, address)
				}
			}
		}
		put(subset.Addresses, true)
		put(subset.NotReadyAddresses, false)
		if moved {
			byAddress := func(a, b core.EndpointAddress) int { return strings.Compare(a.IP, b.IP) }
			slices.SortStableFunc(ready, byAddress)
			slices.SortStableFunc(other, byAddress)
		}
		subset.Addresses, subset.NotReadyAddresses = ready, other
	}
}

func (p *pods) counts() string {
	return fmt.Sprintf("%d reports of %d pods, %d times awaited, %d replaced", p.reports, len(p.all), p.awaited, p.recreated)
}

// some returns some of the pods, each at most once.
func (p *pods) some() []*pod {
	if p == nil {
		return nil
	}
	var some []*pod
	for _, one := range p.all {
		if p.random.IntN(4) == 0 {
			some = append(some, one)
		}
	}
	return some
}

func (one *pod) reference() *core.ObjectReference {
	return &core.ObjectReference{Kind: "Pod", Namespace: space, Name: one.name, UID: one.uid}
}

// podsOf is what kubelet reads.
func podsOf(client kubernetes.Interface, node string) collection {
	all := client.CoreV1().Pods("")
	own := func(options meta.ListOptions) meta.ListOptions {
		options.FieldSelector = "spec.nodeName=" + node
		return options
	}
	return collection{
		example: &core.Pod{},
		list: func(ctx context.Context, options meta.ListOptions) (runtime.Object, error) {
			return all.List(ctx, own(options))
		},
		watch: func(ctx context.Context, options meta.ListOptions) (watch.Interface, error) {
			return all.Watch(ctx, own(options))
		},
	}
}
