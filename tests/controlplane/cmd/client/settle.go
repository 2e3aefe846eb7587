package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"weir/controlplane/internal/promises"
)

// reconnecting is how long a pause may last: client-go waits up to a minute before it connects again, and an API server
// that has just started sends Retry-After. Only a hang reaches it.
const reconnecting = 4 * time.Minute

// The files of the record of a run.
const (
	// operations has every change of the cluster.
	operations = "operations.txt"
	// faults has what happened to the filters, the connections and the daemon, and the pauses.
	faults = "faults.txt"
	// requests is the folder with what each client has requested and received.
	requests = "requests/"
	// caches is the folder with what each client holds at the end, and what it should hold.
	caches = "caches/"
)

// rereading is how often the API server's objects are read again while a client differs: the daemon itself writes the
// condition of its Node.
const rereading = time.Second

// source is one resource, read past Weir at each pause.
type source struct {
	name    string
	of      collection
	objects map[string]runtime.Object
	states  map[string]promises.Object
	// version is that of the last list.
	version uint64
}

// read lists the resource, and returns whether it has changed. The list is consistent.
func (s *source) read(ctx context.Context) (bool, error) {
	list, err := s.of.list(ctx, meta.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("%s: %w", s.name, err)
	}
	accessor, err := apimeta.ListAccessor(list)
	if err != nil {
		return false, err
	}
	if s.version, err = strconv.ParseUint(accessor.GetResourceVersion(), 10, 64); err != nil {
		return false, err
	}
	items, err := apimeta.ExtractList(list)
	if err != nil {
		return false, err
	}
	objects, states := map[string]runtime.Object{}, map[string]promises.Object{}
	for _, object := range items {
		is, err := stateOf(object)
		if err != nil {
			return false, err
		}
		objects[is.Name], states[is.Name] = object, is
	}
	changed := !maps.Equal(states, s.states)
	s.objects, s.states = objects, states
	return changed, nil
}

func (s *source) get(key string) runtime.Object  { return s.objects[key] }
func (s *source) all() map[string]runtime.Object { return s.objects }
func (r *run) source(name string, of collection) *source {
	s := &source{name: name, of: of}
	r.sources = append(r.sources, s)
	return s
}

// pair is one resource, read through Weir and past it.
type pair struct {
	straight *source
	through  *mirror
	// component is the one that it reads as.
	component string
	// metadataOnly is whether the client through Weir reads nothing but metadata.
	metadataOnly bool
	// remembered is whether Weir serves this client while no API server can be reached.
	remembered bool

	// expected is what the client must hold in this pause, and wanted the rules that kube-proxy would make of it.
	expected map[string]runtime.Object
	wanted   map[string]string
	// compared is how much the client had processed when difference was found.
	compared   int64
	difference string
}

// expect computes what the client must hold.
func (p *pair) expect(r *run) {
	p.compared = -1
	p.expected = map[string]runtime.Object{}
	trackers, rules := newTracked(r.node), r.rules.of(p.component)
	for key, object := range p.straight.all() {
		shown := rules.shown(r.world, r.mutator.own.shown(object))
		if shown == nil {
			continue
		}
		trackers.changed(nil, shown)
		if p.metadataOnly {
			shown = metadataOfObject(shown)
		}
		p.expected[key] = shown
	}
	p.wanted = trackers.rules()
}

// held returns what the client holds, in the form that is compared.
func (p *pair) held() map[string]runtime.Object {
	held := p.through.all()
	if p.metadataOnly {
		// JSON names the kind PartialObjectMetadata, protobuf none.
		for key, object := range held {
			held[key] = metadataOfObject(object)
		}
	}
	return held
}

// differs returns the first difference of the cache, of kube-proxy's trackers, or of the version that the client would
// continue from; an empty text without one.
func (p *pair) differs() string {
	// What is processed from here on is compared the next time.
	if processed := p.through.processed.Load(); processed != p.compared {
		p.compared = processed
		p.difference = compare(p.expected, p.held())
		if p.difference == "" && !p.metadataOnly {
			if text := proxied(p.through.proxy.rules(), p.wanted); text != "" {
				p.difference = "as kube-proxy tracks it: " + text
			}
		}
	}
	if p.difference != "" {
		return p.difference
	}
	p.through.mutex.Lock()
	defer p.through.mutex.Unlock()
	if err := p.through.stream.AtRest(); err != nil {
		return err.Error()
	}
	return ""
}

// inForce waits until Weir reports that the last configuration is in force. Before that Weir may have modules to
// compile, which takes longer than anything else here.
func (r *run) inForce(ctx context.Context) error {
	begun := time.Now()
	err := eventually(ctx, func() error {
		body, err := r.adminPage(ctx, "/filters")
		if err != nil {
			return err
		}
		if !strings.Contains(body, `"`+r.rules.mark()+`"`) {
			return fmt.Errorf("%s is not in force: %s", r.rules.mark(), body)
		}
		return nil
	})
	r.longestLoad = max(r.longestLoad, time.Since(begun))
	return err
}

// settle waits until the configuration is in force, and then until every client is equal: each within the limit, counted while
// its watch is open. A client that waits to connect again, as client-go does, is waited for.
func (r *run) settle(ctx context.Context, when string) error {
	r.pauses++
	if err := r.inForce(ctx); err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	r.record.Line(faults, "a pause %s, with %+v in force", when, r.rules)
	begun := time.Now()
	r.begin(begun)
	counted, _, err := r.expect(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	read := begun
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	last, took, late := "", time.Duration(0), error(nil)
	for {
		// Nobody is late before the objects were read again.
		if now := time.Now(); now.Sub(read) > rereading || late != nil {
			again, changed, err := r.expect(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", when, err)
			}
			if changed {
				r.record.Line(faults, "the API server's objects have changed in the pause")
				r.begin(now)
				late, took = nil, 0
			}
			if late != nil {
				return late
			}
			counted, read = again, now
		}
		differing, closed := "", ""
		for _, pair := range counted {
			if fault := pair.through.fault.Load(); fault != nil {
				return fmt.Errorf("%s: %s", when, *fault)
			}
			now := time.Now()
			text := pair.differs()
			if text == "" {
				continue
			}
			m := pair.through
			m.mutex.Lock()
			elapsed, tooLate, open := m.clock.Elapsed(now), m.clock.Late(now), m.clock.IsOpen()
			m.mutex.Unlock()
			took = max(took, elapsed)
			differing = m.name + ": " + text
			if !open {
				closed = m.name
			}
			if tooLate != nil && late == nil {
				late = fmt.Errorf("%s: %s: %w, rules %+v, pool %q:\n%s", when, m.name, tooLate, r.rules, r.world.pool(), text)
			}
		}
		if differing == "" {
			r.equal(when, took, time.Since(begun), last)
			return nil
		}
		last = differing
		if time.Since(begun) > reconnecting {
			return fmt.Errorf("%s: not equal within %v; the watch of %q is not open:\n%s", when, reconnecting, closed, last)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin is called at the last change.
func (r *run) begin(now time.Time) {
	for _, pair := range r.pairs {
		pair.through.mutex.Lock()
		pair.through.clock.Begin(now)
		pair.through.mutex.Unlock()
	}
}

// expect reads the API server's objects, and computes from them what clients must hold. It returns the clients that count, and
// whether anything has changed.
func (r *run) expect(ctx context.Context) ([]*pair, bool, error) {
	changed, begun := false, time.Now()
	for _, source := range r.sources {
		err := eventually(ctx, func() error {
			other, err := source.read(ctx)
			changed = changed || other
			return err
		})
		if err != nil {
			return nil, false, err
		}
	}
	if took := time.Since(begun); took > slow {
		fmt.Printf("reading the API server's objects took %.2f s\n", took.Seconds())
	}
	var counted []*pair
	for _, pair := range r.pairs {
		if r.daemon == nil || !r.daemon.offline || pair.remembered {
			pair.expect(r)
			counted = append(counted, pair)
		}
	}
	return counted, changed, nil
}

// equal ends a pause. took is the longest time with an open watch.
func (r *run) equal(when string, took, waited time.Duration, last string) {
	r.record.Line(faults, "equal %.3f s after the watches were open, %.3f s after the pause began", took.Seconds(), waited.Seconds())
	r.waited += took
	if took > slow {
		fmt.Printf("%s: equal after %.2f s, API server restarted %v, last difference: %.200s\n", when, took.Seconds(), r.restarted, last)
	}
	if r.restarted {
		r.longestAfter = max(r.longestAfter, took)
	} else {
		r.longest = max(r.longest, took)
	}
	r.longestPause = max(r.longestPause, waited)
	r.restarted = false
	r.bury()
}

// bury remembers which objects are deleted by now: those of the last pause, and those that any client has seen since.
func (r *run) bury() {
	// Offline nothing has changed since the last pause.
	if r.daemon != nil && r.daemon.offline {
		return
	}
	alive := map[string]*source{}
	for _, source := range r.sources {
		for _, object := range source.objects {
			if is, err := stateOf(object); err == nil {
				alive[is.UID] = source
			}
		}
	}
	exists := func(uid string) bool { return alive[uid] != nil }
	for uid, source := range r.alive {
		if !exists(uid) {
			r.gone.uids.LoadOrStore(uid, source.version)
		}
	}
	for _, pair := range r.pairs {
		pair.through.mutex.Lock()
		buried := pair.through.stream.Bury(exists)
		pair.through.mutex.Unlock()
		for _, uid := range buried {
			r.gone.uids.LoadOrStore(uid, pair.straight.version)
		}
	}
	r.alive = alive
}

// keepCache writes down what a client holds and should hold.
func (r *run) keepCache(p *pair) {
	name, expected, held := caches+p.through.file(), p.expected, p.held()
	for key, is := range held {
		if wanted := expected[key]; compare(map[string]runtime.Object{key: wanted}, map[string]runtime.Object{key: is}) != "" {
			r.record.Line(name, "DIFFERS %s\nexpected %s\nheld     %s", key, text(wanted), text(is))
		} else {
			r.record.Line(name, "equal %s %s", key, text(is))
		}
	}
	for key, wanted := range expected {
		if held[key] == nil {
			r.record.Line(name, "MISSING %s\nexpected %s", key, text(wanted))
		}
	}
}

// keep writes down what every client holds, and what Weir reports of itself.
func (r *run) keep(ctx context.Context) error {
	if r.record == nil {
		return nil
	}
	for _, pair := range r.pairs {
		r.keepCache(pair)
	}
	var all error
	for _, page := range []string{"/caches", "/filters", "/status"} {
		body, err := r.adminPage(ctx, page)
		all = errors.Join(all, err)
		r.record.Line("daemon"+strings.ReplaceAll(page, "/", "-")+".txt", "%s", body)
	}
	return all
}
