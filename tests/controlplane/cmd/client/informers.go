package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	factories "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
)

const (
	place = "informers"
	many  = 60
	page  = 7
)

var serviceResource = schema.GroupVersionResource{Version: "v1", Resource: "services"}

// counted counts the requests of a client.
type counted struct {
	next                       http.RoundTripper
	lists, watches, watchLists atomic.Int64
	// http2 counts the responses over HTTP/2.
	http2 atomic.Int64
}

func (c *counted) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	switch {
	case query.Get("sendInitialEvents") == "true":
		c.watchLists.Add(1)
	case query.Get("watch") == "true":
		c.watches.Add(1)
	default:
		c.lists.Add(1)
	}
	answer, err := c.next.RoundTrip(request)
	if err == nil && answer.ProtoMajor == 2 {
		c.http2.Add(1)
	}
	return answer, err
}

// informers asserts that client-go's informers of every kind (typed as JSON and as protobuf, dynamic, metadata only)
// hold the filtered objects, from their first list on and through all changes. Weir must hide LoadBalancers and
// nothing else. A flag selects whether they start with a list or a watch-list.
func informers(ctx context.Context, s *sides) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if err := s.setWatchList(); err != nil {
		return err
	}
	straight, err := typed(s.straight())
	if err != nil {
		return err
	}
	if err := populate(ctx, straight); err != nil {
		return err
	}
	if err := paging(ctx, s, straight); err != nil {
		return fmt.Errorf("paging: %w", err)
	}
	kinds, counts, err := start(ctx, s)
	if err != nil {
		return err
	}
	if err := all(ctx, kinds, straight, "after the first list"); err != nil {
		return err
	}
	if err := change(ctx, straight); err != nil {
		return err
	}
	if err := all(ctx, kinds, straight, "after changes"); err != nil {
		return err
	}
	return asked(s.watchList, s.weirCA != "", counts)
}

func service(i int) *core.Service {
	object := &core.Service{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf("svc-%02d", i), Namespace: place}}
	object.Spec.Ports = []core.ServicePort{{Name: "http", Port: 80}}
	if i%3 == 0 {
		object.Spec.Type = core.ServiceTypeLoadBalancer
	}
	return object
}

// populate creates the namespace and its services.
func populate(ctx context.Context, client kubernetes.Interface) error {
	namespace := &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: place}}
	_, err := client.CoreV1().Namespaces().Create(ctx, namespace, meta.CreateOptions{})
	if err != nil {
		// The previous run left its services behind.
		for i := range many + 10 {
			_ = client.CoreV1().Services(place).Delete(ctx, service(i).Name, meta.DeleteOptions{})
		}
	}
	for i := range many {
		if _, err := client.CoreV1().Services(place).Create(ctx, service(i), meta.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// change creates, changes and deletes services, and makes some hidden and others visible.
func change(ctx context.Context, client kubernetes.Interface) error {
	services := client.CoreV1().Services(place)
	for i := range many {
		name := service(i).Name
		if i%5 == 4 {
			if err := services.Delete(ctx, name, meta.DeleteOptions{}); err != nil {
				return err
			}
			continue
		}
		object, err := services.Get(ctx, name, meta.GetOptions{})
		if err != nil {
			return err
		}
		object.Labels = map[string]string{"changed": "yes"}
		switch i % 6 {
		case 0:
			object.Spec.Type = core.ServiceTypeClusterIP
		case 1:
			object.Spec.Type = core.ServiceTypeLoadBalancer
		}
		if _, err := services.Update(ctx, object, meta.UpdateOptions{}); err != nil {
			return err
		}
	}
	for i := range 10 {
		if _, err := services.Create(ctx, service(many+i), meta.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// shownServices returns the services that a client of Weir must hold: read directly, without LoadBalancers.
func shownServices(ctx context.Context, client kubernetes.Interface) (map[string]*core.Service, error) {
	list, err := client.CoreV1().Services(place).List(ctx, meta.ListOptions{})
	if err != nil {
		return nil, err
	}
	shown := map[string]*core.Service{}
	for i, object := range list.Items {
		if object.Spec.Type != core.ServiceTypeLoadBalancer {
			shown[object.Name] = &list.Items[i]
		}
	}
	return shown, nil
}

// paging lists in pages through Weir: every visible object comes once, and no page is longer than its limit.
func paging(ctx context.Context, s *sides, straight kubernetes.Interface) error {
	expected, err := shownServices(ctx, straight)
	if err != nil {
		return err
	}
	for _, format := range []string{json, protobuf} {
		client, err := typed(s.through(s.weir, "pager", format))
		if err != nil {
			return err
		}
		pages, seen := 0, map[string]bool{}
		lists := pager.New(func(ctx context.Context, options meta.ListOptions) (runtime.Object, error) {
			pages++
			list, err := client.CoreV1().Services(place).List(ctx, options)
			if err == nil && len(list.Items) > page {
				err = fmt.Errorf("a page of %d", len(list.Items))
			}
			return list, err
		})
		lists.PageSize = page
		err = lists.EachListItem(ctx, meta.ListOptions{}, func(object runtime.Object) error {
			name := object.(*core.Service).Name
			if seen[name] || expected[name] == nil || !equality.Semantic.DeepEqual(object, expected[name]) {
				return fmt.Errorf("%s: seen %v, expected %v, got %v", name, seen[name], expected[name], object)
			}
			seen[name] = true
			return nil
		})
		if err != nil {
			return err
		}
		if len(seen) != len(expected) || pages != (many+page-1)/page {
			return fmt.Errorf("%s: %d of %d services on %d pages", format, len(seen), len(expected), pages)
		}
	}
	return nil
}

// kind is one informer, and the comparison of its objects.
type kind struct {
	name     string
	informer cache.SharedIndexInformer
	equal    func(held any, expected *core.Service) bool
}

// start starts one informer of each kind.
func start(ctx context.Context, s *sides) ([]kind, []*counted, error) {
	var kinds []kind
	var counts []*counted
	count := func(config *rest.Config, err error) (*rest.Config, error) {
		if err == nil {
			counter := &counted{}
			counts = append(counts, counter)
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				counter.next = next
				return counter
			})
		}
		return config, err
	}
	for _, format := range []string{json, protobuf} {
		client, err := typed(count(s.through(s.weir, "informer", format)))
		if err != nil {
			return nil, nil, err
		}
		factory := factories.NewSharedInformerFactoryWithOptions(client, 0, factories.WithNamespace(place))
		kinds = append(kinds, kind{"typed as " + format, factory.Core().V1().Services().Informer(),
			func(held any, expected *core.Service) bool { return equality.Semantic.DeepEqual(held, expected) }})
		factory.Start(ctx.Done())
	}
	custom, err := untyped(count(s.through(s.weir, "informer", json)))
	if err != nil {
		return nil, nil, err
	}
	dynamics := dynamicinformer.NewFilteredDynamicSharedInformerFactory(custom, 0, place, nil)
	kinds = append(kinds, kind{"dynamic", dynamics.ForResource(serviceResource).Informer(), equalUnstructured})
	dynamics.Start(ctx.Done())
	for _, format := range []string{json, protobuf} {
		config, err := count(s.through(s.weir, "informer", format))
		if err != nil {
			return nil, nil, err
		}
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, place, nil)
		kinds = append(kinds, kind{"metadata only as " + format, factory.ForResource(serviceResource).Informer(),
			func(held any, expected *core.Service) bool {
				object, ok := held.(*meta.PartialObjectMetadata)
				return ok && equality.Semantic.DeepEqual(object.ObjectMeta, expected.ObjectMeta)
			}})
		factory.Start(ctx.Done())
	}
	return kinds, counts, nil
}

func equalUnstructured(held any, expected *core.Service) bool {
	object, ok := held.(*unstructured.Unstructured)
	if !ok || object.GetKind() != "Service" || object.GetAPIVersion() != "v1" {
		return false
	}
	var service core.Service
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &service, true)
	service.TypeMeta = expected.TypeMeta
	return err == nil && equality.Semantic.DeepEqual(&service, expected)
}

// all waits until every informer holds exactly the visible objects.
func all(ctx context.Context, kinds []kind, straight kubernetes.Interface, when string) error {
	expected, err := shownServices(ctx, straight)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		if !cache.WaitForCacheSync(ctx.Done(), kind.informer.HasSynced) {
			return fmt.Errorf("%s: never synced", kind.name)
		}
		if err := eventually(ctx, func() error { return kind.holds(expected) }); err != nil {
			return fmt.Errorf("%s, %s: %w", kind.name, when, err)
		}
	}
	return nil
}

func (k kind) holds(expected map[string]*core.Service) error {
	held := k.informer.GetStore().List()
	if len(held) != len(expected) {
		return fmt.Errorf("%d objects are held, %d expected", len(held), len(expected))
	}
	for name, object := range expected {
		is, found, err := k.informer.GetStore().GetByKey(place + "/" + name)
		if err != nil {
			return err
		}
		if !found || !k.equal(is, object) {
			return fmt.Errorf("%s is %v, expected %v", name, is, object)
		}
	}
	return nil
}

// eventually retries until holds succeeds.
func eventually(ctx context.Context, holds func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// asked asserts that the informers started as selected, and over HTTP/2 with TLS.
func asked(watchList, secure bool, counts []*counted) error {
	for i, count := range counts {
		lists, watches, watchLists := count.lists.Load(), count.watches.Load(), count.watchLists.Load()
		fmt.Printf("informer %d: %d lists, %d watches, %d watch-lists\n", i, lists, watches, watchLists)
		if watchList && (lists != 0 || watchLists == 0) || !watchList && (lists == 0 || watchLists != 0 || watches == 0) {
			return fmt.Errorf("informer %d with watch-list %v: %d lists, %d watches, %d watch-lists",
				i, watchList, lists, watches, watchLists)
		}
		// An open watch may have no response yet.
		if over := count.http2.Load(); secure && over == 0 || !secure && over != 0 {
			return fmt.Errorf("informer %d with TLS %v: %d answers over HTTP/2", i, secure, over)
		}
	}
	return nil
}
