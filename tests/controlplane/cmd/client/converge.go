package main

import (
	"context"
	encoding "encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"sort"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"weir/controlplane/internal/cut"
)

// slow is the shortest pause that the output mentions. The time until both sides are equal depends on the machine, so
// only patience bounds it.
const slow = time.Second

// pair is one resource, read through Weir and directly.
type pair struct {
	straight, through *mirror
}

// run is a random run. The seed determines its changes and mishaps.
type run struct {
	*sides
	random  *rand.Rand
	mutator *mutator
	world   *world
	pairs   []pair
	link    *cut.Proxy
	rules   rules

	reloads, broken, cuts, restarts, pauses int
	waited, longest, longestAfter           time.Duration
	// longestLoad is the longest wait until a configuration was in force.
	longestLoad time.Duration
	// restarted is whether the API server was restarted since the last pause.
	restarted bool
}

// converge makes random changes of the cluster, of the filters and of the connections. At each pause it asserts that
// the caches of Weir's clients equal the filtered caches of the API server's clients.
func converge(ctx context.Context, s *sides) error {
	if s.seed == 0 {
		s.seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	s.watchList = s.seed%2 == 0
	if err := s.setWatchList(); err != nil {
		return err
	}
	if s.secure != "" && s.seed/2%2 == 1 {
		s.weir = s.secure
	}
	fmt.Printf("seed %d, %d mutations, watch-list %v, at %s\n", s.seed, s.mutations, s.watchList, s.weir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := prepare(ctx, s)
	if err != nil {
		return err
	}
	begun := time.Now()
	err = r.stretches(ctx)
	lists, watchLists := int64(0), int64(0)
	for _, pair := range r.pairs {
		lists += pair.through.lists.Load()
		watchLists += pair.through.watchLists.Load()
	}
	fmt.Printf("%d changes made, %d refused, in %.0f s; %d reloads, %d invalid ones, %d cuts, %d restarts of the API server, %d pauses; "+
		"equal after %.2f s on average, %.2f s at most, %.2f s at most after a restart; filters in force after %.2f s at most; %d lists and %d watch-lists of %d clients\n",
		r.mutator.accepted, r.mutator.refused, time.Since(begun).Seconds(), r.reloads, r.broken, r.cuts, r.restarts, r.pauses,
		r.waited.Seconds()/float64(max(1, r.pauses)), r.longest.Seconds(), r.longestAfter.Seconds(),
		r.longestLoad.Seconds(), lists, watchLists, len(r.pairs))
	if err == nil && s.watchList != (watchLists > 0) {
		err = errors.New("the clients did not start with the selected kind of list")
	}
	if err != nil {
		return fmt.Errorf("seed %d: %w", s.seed, err)
	}
	return nil
}

func prepare(ctx context.Context, s *sides) (*run, error) {
	weir, err := url.Parse(s.weir)
	if err != nil {
		return nil, err
	}
	link, err := cut.Start(weir.Host)
	if err != nil {
		return nil, err
	}
	past := weir.Scheme + "://" + link.Address
	straight, err := typed(s.straight())
	if err != nil {
		return nil, err
	}
	custom, err := untyped(s.straight())
	if err != nil {
		return nil, err
	}
	writer, err := typed(s.through(s.weir, "writer", protobuf))
	if err != nil {
		return nil, err
	}
	namespace := &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: space}}
	if _, err := straight.CoreV1().Namespaces().Create(ctx, namespace, meta.CreateOptions{}); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(s.seed, 0))
	r := &run{sides: s, random: random, link: link, mutator: &mutator{
		Rand: random, node: s.node, typed: straight, untyped: custom, weir: writer,
		pools: []string{space + "-hangzhou", space + "-beijing"},
	}}
	// Mirrors have clients of their own: writers respect Retry-After.
	straight, err = typed(withoutWaiting(s.straight()))
	if err != nil {
		return nil, err
	}
	custom, err = untyped(withoutWaiting(s.straight()))
	if err != nil {
		return nil, err
	}
	services, slices := r.follow(ctx, "services", servicesOf(straight)), r.follow(ctx, "slices", slicesOf(straight))
	endpoints, configMaps := r.follow(ctx, "endpoints", endpointsOf(straight)), r.follow(ctx, "configmaps", configMapsOf(straight))
	nodes, pools := r.follow(ctx, "nodes", nodesOf(straight)), r.follow(ctx, "pools", customOf(custom, poolResource))
	buckets := r.follow(ctx, "buckets", customOf(custom, bucketResource))
	r.world = &world{node: s.node, services: services, slices: slices, nodes: nodes, pools: pools, buckets: buckets}

	for _, format := range []string{protobuf, json} {
		word := strings.TrimPrefix(format, "application/")
		client, err := typed(withoutWaiting(s.through(past, "reader-"+word[max(0, len(word)-8):], format)))
		if err != nil {
			return nil, err
		}
		through := func(past *mirror, of collection) {
			r.pairs = append(r.pairs, pair{past, r.follow(ctx, past.name+" as "+word, of)})
		}
		through(services, servicesOf(client))
		through(slices, slicesOf(client))
		through(endpoints, endpointsOf(client))
		through(configMaps, configMapsOf(client))
		through(nodes, nodesOf(client))
	}
	client, err := untyped(withoutWaiting(s.through(past, "reader-custom", json)))
	if err != nil {
		return nil, err
	}
	r.pairs = append(r.pairs, pair{pools, r.follow(ctx, "pools", customOf(client, poolResource))})
	return r, r.reload()
}

func (r *run) follow(ctx context.Context, name string, of collection) *mirror {
	return follow(ctx, name, of, r.node)
}

// stretches runs in stretches of changes with a pause after each.
func (r *run) stretches(ctx context.Context) error {
	if err := r.settle(ctx, "at the start"); err != nil {
		return err
	}
	for done := 0; done < r.mutations; {
		stretch := min(20+r.random.IntN(150), r.mutations-done)
		if r.random.IntN(8) == 0 {
			if err := r.breakConfiguration(); err != nil {
				return err
			}
		}
		for range stretch {
			if err := r.mishap(ctx); err != nil {
				return err
			}
			if err := r.mutator.one(ctx); err != nil {
				return fmt.Errorf("change %d: %w", done, err)
			}
			done++
		}
		if err := r.settle(ctx, fmt.Sprintf("after %d changes", done)); err != nil {
			return err
		}
	}
	return nil
}

// mishap fails or changes something other than the objects. It is rare, so that watches live for a while.
func (r *run) mishap(ctx context.Context) error {
	switch roll := r.random.IntN(2400); {
	case roll < 30:
		return r.reload()
	case roll < 40:
		r.cuts++
		r.link.Cut()
	case roll < 50:
		return r.cutServer(ctx)
	case roll < 60:
		// Clients reconnect exactly at the swap of the filters.
		r.cuts++
		err := r.reload()
		r.link.Cut()
		return err
	case roll < 70:
		return errors.Join(r.reload(), r.cutServer(ctx))
	case roll < 72:
		r.restarts++
		r.restarted = true
		return r.command(ctx, "restart")
	}
	return nil
}

func (r *run) reload() error {
	r.reloads++
	r.rules = randomRules(r.random)
	r.rules.generation = r.reloads
	return r.write(r.rules.manifest())
}

// breakConfiguration writes an invalid configuration, which leaves the filters unchanged. It is called only when the
// last valid ones are in force.
func (r *run) breakConfiguration() error {
	r.broken++
	return r.write(strings.ReplaceAll(r.rules.manifest(), "settings: {", "settings: {unknown: 1, ") + "  broken: [\n")
}

func (r *run) write(text string) error {
	aside := r.config + ".aside"
	if err := os.WriteFile(aside, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(aside, r.config)
}

func (r *run) cutServer(ctx context.Context) error {
	r.cuts++
	return r.command(ctx, "cut")
}

// command sends a command to the control plane. The response arrives when it is done.
func (r *run) command(ctx context.Context, name string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.control+"/"+name, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", name, answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}

// inForce waits until Weir reports that the last configuration is in force. Before that Weir may have modules to
// compile, which takes longer than anything else here.
func (r *run) inForce(ctx context.Context) error {
	begun := time.Now()
	err := eventually(ctx, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.admin+"/filters", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			return err
		}
		if !strings.Contains(string(body), `"`+r.rules.mark()+`"`) {
			return fmt.Errorf("%s is not in force: %s", r.rules.mark(), body)
		}
		return nil
	})
	r.longestLoad = max(r.longestLoad, time.Since(begun))
	return err
}

// settle waits until the configuration is in force, and then until both sides are equal.
func (r *run) settle(ctx context.Context, when string) error {
	r.pauses++
	if err := r.inForce(ctx); err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	begun, last := time.Now(), ""
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		difference, err := r.difference()
		if err != nil {
			return fmt.Errorf("%s: %w", when, err)
		}
		took := time.Since(begun)
		if difference == "" {
			r.waited += took
			if took > slow {
				fmt.Printf("%s: equal after %.2f s, API server restarted %v, last difference: %.200s\n", when, took.Seconds(), r.restarted, last)
			}
			if r.restarted {
				r.longestAfter = max(r.longestAfter, took)
			} else {
				r.longest = max(r.longest, took)
			}
			r.restarted = false
			return nil
		}
		last = difference
		if took > patience {
			return fmt.Errorf("%s: not equal within %v, rules %+v, pool %q:\n%s", when, patience, r.rules, r.world.pool(), difference)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// difference returns the first difference, or an empty text.
func (r *run) difference() (string, error) {
	for _, pair := range r.pairs {
		if fault := pair.through.fault.Load(); fault != nil {
			return "", errors.New(*fault)
		}
		expected := map[string]runtime.Object{}
		for key, object := range pair.straight.all() {
			if shown := r.rules.shown(r.world, object); shown != nil {
				expected[key] = shown
			}
		}
		if text := compare(expected, pair.through.all()); text != "" {
			return pair.through.name + ": " + text, nil
		}
		if text := r.proxied(pair.through, expected); text != "" {
			return pair.through.name + ", as kube-proxy tracks it: " + text, nil
		}
	}
	return "", nil
}

// proxied compares kube-proxy's trackers after all events so far with new trackers of the final state. A port or an
// endpoint that no event removed stays in the former, even if the cache is right.
func (r *run) proxied(m *mirror, expected map[string]runtime.Object) string {
	anew := newTracked(r.node)
	for _, object := range expected {
		anew.changed(nil, object)
	}
	wanted, is := anew.rules(), m.proxy.rules()
	for key, rule := range wanted {
		if is[key] != rule {
			return fmt.Sprintf("%s is %q, expected %q", key, is[key], rule)
		}
	}
	for key, rule := range is {
		if wanted[key] == "" {
			return fmt.Sprintf("%s is %q, expected nothing", key, rule)
		}
	}
	return ""
}

func compare(expected, held map[string]runtime.Object) string {
	keys := map[string]bool{}
	for key := range expected {
		keys[key] = true
	}
	for key := range held {
		keys[key] = true
	}
	sorted := make([]string, 0, len(keys))
	for key := range keys {
		sorted = append(sorted, key)
	}
	sort.Strings(sorted)
	for _, key := range sorted {
		if !equality.Semantic.DeepEqual(expected[key], held[key]) {
			return fmt.Sprintf("%s\n expected %s\n held     %s", key, text(expected[key]), text(held[key]))
		}
	}
	return ""
}

func text(object runtime.Object) string {
	if object == nil {
		return "nothing"
	}
	plain := object.DeepCopyObject()
	if accessor, ok := plain.(meta.Object); ok {
		accessor.SetManagedFields(nil)
	}
	bytes, err := encoding.Marshal(plain)
	if err != nil {
		return err.Error()
	}
	return string(bytes)
}
