package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	factories "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/proxy"
	"k8s.io/kubernetes/pkg/proxy/config"
)

// tracked is kube-proxy between its informers and its rules: its handlers, its change trackers, and their maps, from
// which every proxier (iptables, ipvs, nftables) writes its rules.
type tracked struct {
	mutex          sync.Mutex
	serviceChanges *proxy.ServiceChangeTracker
	sliceChanges   *proxy.EndpointsChangeTracker
	services       proxy.ServicePortMap
	endpoints      proxy.EndpointsMap
	synced         int
}

func newTracked(node string) *tracked {
	return &tracked{
		serviceChanges: proxy.NewServiceChangeTracker(core.IPv4Protocol, nil, nil),
		sliceChanges:   proxy.NewEndpointsChangeTracker(core.IPv4Protocol, node, nil, nil),
		services:       proxy.ServicePortMap{}, endpoints: proxy.EndpointsMap{},
	}
}

func (t *tracked) service(previous, current *core.Service) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.serviceChanges.Update(previous, current)
	t.services.Update(t.serviceChanges)
}

func (t *tracked) slice(slice *discovery.EndpointSlice, removed bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.sliceChanges.EndpointSliceUpdate(slice, removed)
	t.endpoints.Update(t.sliceChanges)
}

func (t *tracked) OnServiceAdd(service *core.Service)              { t.service(nil, service) }
func (t *tracked) OnServiceUpdate(previous, current *core.Service) { t.service(previous, current) }
func (t *tracked) OnServiceDelete(service *core.Service)           { t.service(service, nil) }
func (t *tracked) OnServiceSynced()                                { t.sync() }

func (t *tracked) OnEndpointSliceAdd(slice *discovery.EndpointSlice)       { t.slice(slice, false) }
func (t *tracked) OnEndpointSliceUpdate(_, slice *discovery.EndpointSlice) { t.slice(slice, false) }
func (t *tracked) OnEndpointSliceDelete(slice *discovery.EndpointSlice)    { t.slice(slice, true) }
func (t *tracked) OnEndpointSlicesSynced()                                 { t.sync() }

func (t *tracked) sync() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.synced++
}

// rule describes the rules that a proxier would write for the port `http` of a service.
func (t *tracked) rule(namespace, name string) string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.synced < 2 {
		return "not synced"
	}
	service := types.NamespacedName{Namespace: namespace, Name: name}
	return t.words(proxy.ServicePortName{NamespacedName: service, Port: "http", Protocol: core.ProtocolTCP})
}

// rules describes all of them.
func (t *tracked) rules() map[string]string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	rules := map[string]string{}
	for key := range t.services {
		rules[key.String()] = t.words(key)
	}
	for key := range t.endpoints {
		rules[key.String()] = t.words(key)
	}
	return rules
}

func (t *tracked) words(key proxy.ServicePortName) string {
	text := "none"
	if port := t.services[key]; port != nil {
		text = "cluster IP"
		if port.ClusterIP() == nil {
			text = "no cluster IP"
		}
		if port.NodePort() != 0 {
			text += ", node port"
		}
		if port.HealthCheckNodePort() != 0 {
			text += ", health check"
		}
		if len(port.LoadBalancerVIPs()) > 0 {
			text += ", balancer"
		}
	}
	var backends []string
	for _, endpoint := range t.endpoints[key] {
		backends = append(backends, endpoint.IP())
	}
	slices.Sort(backends)
	return strings.TrimSuffix(text+" to "+strings.Join(backends, " "), " to ")
}

// changed passes on an informer event: the object before and after, reduced to the kinds that kube-proxy reads.
func (t *tracked) changed(previous, current any) {
	switch object := cmp.Or(current, previous).(type) {
	case *core.Service:
		before, _ := previous.(*core.Service)
		after, _ := current.(*core.Service)
		t.service(before, after)
	case *discovery.EndpointSlice:
		t.slice(object, current == nil)
	}
}

// proxyHandler receives the events of kube-proxy's configuration.
type proxyHandler interface {
	config.ServiceHandler
	config.EndpointSliceHandler
}

// connectProxy does what kube-proxy's server does before it starts its proxier.
func connectProxy(ctx context.Context, client kubernetes.Interface, handlers ...proxyHandler) {
	// kube-proxy's own selector: no headless services, and none with another service proxy.
	selected := "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name"
	factory := factories.NewSharedInformerFactoryWithOptions(client, 0,
		factories.WithTweakListOptions(func(options *meta.ListOptions) { options.LabelSelector = selected }))
	services := config.NewServiceConfig(ctx, factory.Core().V1().Services(), 0)
	for _, handler := range handlers {
		services.RegisterEventHandler(handler)
	}
	go services.Run(ctx.Done())
	endpoints := config.NewEndpointSliceConfig(ctx, factory.Discovery().V1().EndpointSlices(), 0)
	for _, handler := range handlers {
		endpoints.RegisterEventHandler(handler)
	}
	go endpoints.Run(ctx.Done())
	factory.Start(ctx.Done())
}
