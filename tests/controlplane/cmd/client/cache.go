package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// collection is one resource as a client lists and watches it.
type collection struct {
	example runtime.Object
	list    func(context.Context, meta.ListOptions) (runtime.Object, error)
	watch   func(context.Context, meta.ListOptions) (watch.Interface, error)
}

// mirror is client-go's reflector, delta queue and indexer, assembled as its informer does, with two differences. It
// retries after a moment where a reflector waits up to a minute, so that a missing object was never sent. It also
// checks that each event is consistent with its cache.
type mirror struct {
	name       string
	store      cache.Indexer
	lists      atomic.Int64
	watchLists atomic.Int64
	// proxy gets every change as kube-proxy does. For a deletion that is the object of the event.
	proxy *tracked
	// fault is the first inconsistent event.
	fault atomic.Pointer[string]
	// gone holds objects that must never be seen again.
	gone *departed
}

// departed holds the UIDs of deleted objects whose deletion every client has seen.
type departed struct {
	uids sync.Map
	// replayed is whether clients may see an old state again for a moment: one whose watch ends amid objects that are sent
	// again continues from the version of one of these, from where on it gets all events a second time.
	replayed bool
	replays  atomic.Int64
}

// hurried is a clock whose timers end after a moment at the latest.
type hurried struct{ clock.RealClock }

const moment = 50 * time.Millisecond

type hurriedTimer struct{ clock.Timer }

func (h hurried) NewTimer(after time.Duration) clock.Timer {
	return hurriedTimer{h.RealClock.NewTimer(min(after, moment))}
}

func (t hurriedTimer) Reset(after time.Duration) bool { return t.Timer.Reset(min(after, moment)) }

// restless removes Retry-After headers. An API server that has just started sends them for custom resources, and
// client-go then sleeps five seconds inside the call.
type restless struct{ next http.RoundTripper }

func (r restless) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := r.next.RoundTrip(request)
	if err == nil {
		answer.Header.Del("Retry-After")
	}
	return answer, err
}

func withoutWaiting(config *rest.Config, err error) (*rest.Config, error) {
	if err == nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return restless{next} })
	}
	return config, err
}

func follow(ctx context.Context, name string, of collection, node string, gone *departed) *mirror {
	m := &mirror{name: name, gone: gone, proxy: newTracked(node), store: cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.Indexers{})}
	queue := cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{KnownObjects: m.store, EmitDeltaTypeReplaced: true})
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options meta.ListOptions) (runtime.Object, error) {
			m.lists.Add(1)
			return of.list(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options meta.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil && *options.SendInitialEvents {
				m.watchLists.Add(1)
			}
			events, err := of.watch(ctx, options)
			if err != nil {
				return nil, err
			}
			return watch.Filter(events, m.departures(options)), nil
		},
	}
	reflector := cache.NewReflectorWithOptions(source, of.example, queue, cache.ReflectorOptions{Name: name, Clock: hurried{}})
	go reflector.RunWithContext(ctx)
	go func() {
		<-ctx.Done()
		queue.Close()
	}()
	go func() {
		for {
			_, err := queue.Pop(func(item any, _ bool) error { return m.process(item.(cache.Deltas)) })
			if errors.Is(err, cache.ErrFIFOClosed) {
				return
			}
			if err != nil {
				m.fail(err)
			}
		}
	}()
	return m
}

func (m *mirror) process(deltas cache.Deltas) error {
	for _, delta := range deltas {
		held, _, err := m.store.Get(delta.Object)
		if err != nil {
			return err
		}
		if delta.Type == cache.Deleted {
			object := delta.Object
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			m.proxy.changed(object, nil)
			err = m.store.Delete(object)
		} else {
			// The events of a watch are checked as they arrive.
			listed := delta.Type == cache.Replaced || delta.Type == cache.Sync
			if err := m.tolerated(m.plausible(held, delta.Object, listed)); err != nil {
				return err
			}
			m.proxy.changed(held, delta.Object)
			err = m.store.Update(delta.Object)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// departures reports an object that comes back after its deletion, at a version that its watch had passed. A watch gets all
// events after its own version, those of objects that were deleted in the meantime included: the version is old where filters
// have hidden everything since.
func (m *mirror) departures(options meta.ListOptions) watch.FilterFunc {
	reached, err := strconv.ParseUint(options.ResourceVersion, 10, 64)
	if err != nil || options.SendInitialEvents != nil {
		reached = math.MaxUint64
	}
	return func(event watch.Event) (watch.Event, bool) {
		is, err := apimeta.Accessor(event.Object)
		if err != nil {
			return event, true // An ERROR event.
		}
		version, err := strconv.ParseUint(is.GetResourceVersion(), 10, 64)
		if err == nil && version <= reached && (event.Type == watch.Added || event.Type == watch.Modified) {
			err = m.tolerated(m.departed(is))
		}
		if err != nil {
			m.fail(err)
		}
		reached = max(reached, version)
		return event, true
	}
}

// departed returns an error for an object that was deleted before.
func (m *mirror) departed(is meta.Object) error {
	if _, deleted := m.gone.uids.Load(is.GetUID()); !deleted {
		return nil
	}
	return fmt.Errorf("%s/%s of UID %s came back after its deletion, at version %s",
		is.GetNamespace(), is.GetName(), is.GetUID(), is.GetResourceVersion())
}

// tolerated counts an old state where clients may see one again, and else returns the error.
func (m *mirror) tolerated(err error) error {
	if err != nil && m.gone.replayed {
		m.gone.replays.Add(1)
		return nil
	}
	return err
}

func (m *mirror) fail(err error) {
	text := fmt.Sprintf("%s: %v", m.name, err)
	m.fault.CompareAndSwap(nil, &text)
}

// plausible returns an error for a listed object that was deleted before, or one that is older than the held one.
func (m *mirror) plausible(held, object any, listed bool) error {
	is, err := apimeta.Accessor(object)
	if err != nil {
		return err
	}
	if err := m.departed(is); listed && err != nil {
		return err
	}
	if held == nil {
		return nil
	}
	was, err := apimeta.Accessor(held)
	if err != nil || was.GetUID() != is.GetUID() {
		return err
	}
	before, err := strconv.ParseUint(was.GetResourceVersion(), 10, 64)
	if err != nil {
		return err
	}
	now, err := strconv.ParseUint(is.GetResourceVersion(), 10, 64)
	if err == nil && now < before {
		err = fmt.Errorf("%s/%s went back from version %s to %s",
			is.GetNamespace(), is.GetName(), was.GetResourceVersion(), is.GetResourceVersion())
	}
	return err
}

func (m *mirror) get(key string) runtime.Object {
	object, _, _ := m.store.GetByKey(key)
	found, _ := object.(runtime.Object)
	return found
}

func (m *mirror) all() map[string]runtime.Object {
	all := map[string]runtime.Object{}
	for _, key := range m.store.ListKeys() {
		if object := m.get(key); object != nil {
			all[key] = object
		}
	}
	return all
}
