package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"weir/controlplane/internal/promises"
	"weir/controlplane/internal/record"
)

// collection is one resource as a client lists and watches it.
type collection struct {
	example runtime.Object
	list    func(context.Context, meta.ListOptions) (runtime.Object, error)
	watch   func(context.Context, meta.ListOptions) (watch.Interface, error)
}

// mirror is client-go's reflector, delta queue and indexer, assembled as its informer does, with client-go's own back-off.
// It checks and records everything that the reflector receives.
type mirror struct {
	name       string
	store      cache.Indexer
	lists      atomic.Int64
	watchLists atomic.Int64
	// proxy gets every change as kube-proxy does. For a deletion that is the object of the event.
	proxy *tracked
	// processed counts what the store and the trackers have taken.
	processed atomic.Int64
	// fault is the first broken promise.
	fault  atomic.Pointer[string]
	record *record.Record

	// mutex is for the fields below.
	mutex  sync.Mutex
	stream *promises.Stream
	clock  promises.Clock
	// current is the newest watch.
	current *checkedWatch
}

// departed holds the UIDs of deleted objects, each with a version at which it is deleted.
type departed struct{ uids sync.Map }

func (d *departed) version(uid string) (uint64, bool) {
	version, deleted := d.uids.Load(uid)
	if !deleted {
		return 0, false
	}
	return version.(uint64), true
}

func follow(ctx context.Context, name string, of collection, node string, gone *departed, kept *record.Record) *mirror {
	m := &mirror{
		name: name, proxy: newTracked(node), record: kept, stream: promises.New(gone.version),
		store: cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.Indexers{}),
	}
	queue := cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{KnownObjects: m.store, EmitDeltaTypeReplaced: true})
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options meta.ListOptions) (runtime.Object, error) {
			return m.list(ctx, of, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options meta.ListOptions) (watch.Interface, error) {
			return m.watch(ctx, of, options)
		},
	}
	reflector := cache.NewReflectorWithOptions(source, of.example, queue, cache.ReflectorOptions{Name: name})
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
	defer m.processed.Add(1)
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
			m.proxy.changed(held, delta.Object)
			err = m.store.Update(delta.Object)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *mirror) list(ctx context.Context, of collection, options meta.ListOptions) (runtime.Object, error) {
	m.lists.Add(1)
	m.note("list from version %q", options.ResourceVersion)
	list, err := of.list(ctx, options)
	if err != nil {
		m.note("no list: %v", err)
		return nil, err
	}
	if err := m.listed(options.ResourceVersion, list); err != nil {
		m.fail(err)
	}
	return list, nil
}

// listed checks and records a list.
func (m *mirror) listed(asked string, list runtime.Object) error {
	accessor, err := apimeta.ListAccessor(list)
	if err != nil {
		return err
	}
	version, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	if err != nil {
		return err
	}
	objects, err := apimeta.ExtractList(list)
	if err != nil {
		return err
	}
	m.note("a list of %d objects at version %d", len(objects), version)
	items := make([]promises.Object, 0, len(objects))
	for _, object := range objects {
		item, err := stateOf(object)
		if err != nil {
			return err
		}
		m.noteObject("LISTED", item)
		items = append(items, item)
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.stream.Listed(asked, version, items)
}

func (m *mirror) watch(ctx context.Context, of collection, options meta.ListOptions) (watch.Interface, error) {
	initial, word := options.SendInitialEvents != nil && *options.SendInitialEvents, "watch"
	if initial {
		m.watchLists.Add(1)
		word = "watch-list"
	}
	m.note("%s from version %q", word, options.ResourceVersion)
	source, err := of.watch(ctx, options)
	if err != nil {
		m.note("no %s: %v", word, err)
		return nil, err
	}
	m.note("the %s is open", word)
	checked := &checkedWatch{mirror: m, source: source, events: make(chan watch.Event), stopped: make(chan struct{})}
	m.mutex.Lock()
	m.current = checked
	m.stream.Opened(options.ResourceVersion, initial)
	m.clock.Opened(time.Now())
	m.mutex.Unlock()
	go checked.run()
	return checked, nil
}

// checkedWatch passes on the events of a watch, checked and recorded.
type checkedWatch struct {
	mirror  *mirror
	source  watch.Interface
	events  chan watch.Event
	once    sync.Once
	stopped chan struct{}
}

func (w *checkedWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *checkedWatch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.source.Stop()
}

func (w *checkedWatch) run() {
	defer close(w.events)
	defer w.mirror.ended(w)
	for event := range w.source.ResultChan() {
		w.mirror.received(w, event)
		select {
		case w.events <- event:
		case <-w.stopped:
			return
		}
	}
}

func (m *mirror) ended(w *checkedWatch) {
	m.note("the watch has ended")
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.current == w {
		m.clock.Closed(time.Now())
	}
}

// received checks and records an event.
func (m *mirror) received(w *checkedWatch, event watch.Event) {
	if event.Type == watch.Error {
		m.note("ERROR %v", apierrors.FromObject(event.Object))
		return
	}
	kind := promises.Kind(event.Type)
	object, err := stateOf(event.Object)
	if err == nil && event.Type == watch.Bookmark {
		accessor, _ := apimeta.Accessor(event.Object)
		if accessor.GetAnnotations()[meta.InitialEventsAnnotationKey] == "true" {
			kind = promises.EndOfInitial
		}
	}
	m.noteObject(string(kind), object)
	if err == nil {
		m.mutex.Lock()
		if m.current == w {
			err = m.stream.Event(kind, object)
		}
		m.mutex.Unlock()
	}
	if err != nil {
		m.fail(err)
	}
}

// stateOf returns what promises are about.
func stateOf(object runtime.Object) (promises.Object, error) {
	is, err := apimeta.Accessor(object)
	if err != nil {
		return promises.Object{}, err
	}
	version, err := strconv.ParseUint(is.GetResourceVersion(), 10, 64)
	return promises.Object{
		Name: strings.TrimPrefix(is.GetNamespace()+"/"+is.GetName(), "/"), UID: string(is.GetUID()),
		Version: version, Generation: is.GetGeneration(),
	}, err
}

func (m *mirror) fail(err error) {
	m.note("BROKEN %v", err)
	text := fmt.Sprintf("%s: %v", m.name, err)
	m.fault.CompareAndSwap(nil, &text)
}

// file is the name of the client's files.
func (m *mirror) file() string { return strings.ReplaceAll(m.name, " ", "-") + ".txt" }

func (m *mirror) note(format string, arguments ...any) {
	m.record.Line(streams+m.file(), format, arguments...)
}

func (m *mirror) noteObject(what string, is promises.Object) {
	m.note("%s %s version %d generation %d UID %s", what, is.Name, is.Version, is.Generation, is.UID)
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
