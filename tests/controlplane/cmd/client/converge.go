package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"weir/controlplane/internal/cut"
	"weir/controlplane/internal/record"
)

// slow is the shortest time that the output mentions.
const slow = time.Second

// run is a random run. The seed determines its changes and mishaps.
type run struct {
	*sides
	random  *rand.Rand
	mutator *mutator
	world   *world
	sources []*source
	pairs   []*pair
	link    *cut.Proxy
	rules   rules
	record  *record.Record

	reloads, broken, cuts, restarts, pauses int
	waited, longest, longestAfter           time.Duration
	// longestPause includes the time in which a client waited to connect again.
	longestPause time.Duration
	// daemon is what happened to the process; nil where the test does not obey commands.
	daemon *daemon
	// alive holds the UIDs of the last pause. gone holds those that were deleted by then.
	alive map[string]*source
	gone  *departed
	// longestLoad is the longest wait until a configuration was in force.
	longestLoad time.Duration
	// invalid is whether the configuration file is. A daemon that starts with it uses the last configuration on its disk, which
	// may be an older one after a kill.
	invalid bool
	// restarted is whether the API server was restarted since the last pause.
	restarted bool
}

// converge makes random changes of the cluster, of the filters and of the connections. At each pause it asserts that
// the caches of Weir's clients equal the filtered caches of the API server's clients.
func converge(ctx context.Context, s *sides) error {
	s.watchList = s.seed%2 == 0
	if err := s.setWatchList(); err != nil {
		return err
	}
	s.plain = s.weir
	if s.secure != "" && s.seed/2%2 == 1 {
		s.weir = s.secure
	}
	fmt.Printf("seed %d, %d mutations, watch-list %v, at %s\n", s.seed, s.mutations, s.watchList, s.weir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kept, err := record.New(s.record)
	if err != nil {
		return err
	}
	err = random(ctx, s, kept)
	err = errors.Join(err, kept.End(err != nil))
	if err != nil {
		err = fmt.Errorf("seed %d: %w", s.seed, err)
	}
	return err
}

// random is a run. What a failed one leaves besides the record is added to it.
func random(ctx context.Context, s *sides, kept *record.Record) error {
	r, err := prepare(ctx, s, kept)
	if err != nil {
		return err
	}
	begun := time.Now()
	err = r.stretches(ctx)
	if err != nil {
		kept.Line(faults, "failed: %v", err)
		if unread := r.keep(ctx); unread != nil {
			fmt.Println("Weir reports nothing of itself:", unread)
		}
	}
	lists, watchLists := int64(0), int64(0)
	for _, pair := range r.pairs {
		lists += pair.through.lists.Load()
		watchLists += pair.through.watchLists.Load()
	}
	if r.daemon != nil {
		fmt.Printf("%s\n", r.mutator.own.counts())
		fmt.Println(r.daemon.counts())
	}
	fmt.Printf("%d changes made, %d refused, in %.0f s; %d reloads, %d invalid ones, %d cuts, %d restarts of the API server, %d pauses; "+
		"equal after %.2f s of open watches on average, %.2f s at most, %.2f s at most after a restart, pauses of %.2f s at most; filters in force after %.2f s at most; %d lists and %d watch-lists of %d clients\n",
		r.mutator.accepted, r.mutator.refused, time.Since(begun).Seconds(), r.reloads, r.broken, r.cuts, r.restarts, r.pauses,
		r.waited.Seconds()/float64(max(1, r.pauses)), r.longest.Seconds(), r.longestAfter.Seconds(), r.longestPause.Seconds(),
		r.longestLoad.Seconds(), lists, watchLists, len(r.pairs))
	if err == nil && s.watchList != (watchLists > 0) {
		err = errors.New("the clients did not start with the selected kind of list")
	}
	return err
}

func prepare(ctx context.Context, s *sides, kept *record.Record) (*run, error) {
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
	route, err := s.through(s.weir, "writer", protobuf)
	if err != nil {
		return nil, err
	}
	if s.daemon {
		// Offline in silence, a write ends no earlier than that is noticed.
		route.Timeout = 300 * time.Millisecond
	}
	writer, err := typed(route, nil)
	if err != nil {
		return nil, err
	}
	namespace := &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: space}}
	if _, err := straight.CoreV1().Namespaces().Create(ctx, namespace, meta.CreateOptions{}); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(s.seed, 0))
	r := &run{sides: s, random: random, link: link, gone: &departed{}, record: kept, mutator: &mutator{
		Rand: random, node: s.node, typed: straight, untyped: custom, weir: writer, record: kept,
		pools: []string{space + "-hangzhou", space + "-beijing"},
	}}
	if s.daemon {
		r.daemon = &daemon{replies: bufio.NewScanner(os.Stdin), record: kept}
		if err := r.joinAsKubelet(ctx, straight); err != nil {
			return nil, err
		}
	}
	services, slices := r.source("services", servicesOf(straight)), r.source("slices", slicesOf(straight))
	endpoints, configMaps := r.source("endpoints", endpointsOf(straight)), r.source("configmaps", configMapsOf(straight))
	nodes, pools := r.source("nodes", nodesOf(straight)), r.source("pools", customOf(custom, poolResource))
	buckets := r.source("buckets", customOf(custom, bucketResource))
	r.world = &world{node: s.node, services: services, slices: slices, nodes: nodes, pools: pools, buckets: buckets}

	for _, reader := range []struct{ format, component string }{{protobuf, protobufReader}, {json, jsonReader}} {
		format, component := reader.format, reader.component
		word := strings.TrimPrefix(format, "application/")
		client, err := typed(s.through(past, component, format))
		if err != nil {
			return nil, err
		}
		through := func(past *source, of collection, remembered bool) {
			follower := r.follow(ctx, past.name+" as "+word, of)
			r.pairs = append(r.pairs, &pair{straight: past, through: follower, component: component, remembered: remembered})
		}
		through(services, servicesOf(client), true)
		through(slices, slicesOf(client), true)
		through(endpoints, endpointsOf(client), true)
		through(configMaps, configMapsOf(client), false)
		through(nodes, nodesOf(client), true)
		partial, err := metadataClient(s.through(past, metadataReader, format))
		if err != nil {
			return nil, err
		}
		converted := func(past *source, resource schema.GroupVersionResource) {
			follower := r.follow(ctx, "metadata of "+past.name+" as "+word, metadataOf(partial, resource))
			r.pairs = append(r.pairs, &pair{
				straight: past, through: follower, component: metadataReader, metadataOnly: true, remembered: true,
			})
		}
		converted(services, core.SchemeGroupVersion.WithResource("services"))
		converted(slices, discovery.SchemeGroupVersion.WithResource("endpointslices"))
		converted(endpoints, core.SchemeGroupVersion.WithResource("endpoints"))
		converted(nodes, core.SchemeGroupVersion.WithResource("nodes"))
	}
	client, err := untyped(s.through(past, "reader-custom", json))
	if err != nil {
		return nil, err
	}
	r.pairs = append(r.pairs, &pair{straight: pools, through: r.follow(ctx, "pools", customOf(client, poolResource))})
	return r, r.firstRules()
}

// firstRules activates every filter, so that all modules are compiled: a module cannot be compiled for the first time while the
// disk is full.
func (r *run) firstRules() error {
	first := randomRules(r.random)
	first.discard, first.isolation, first.topology, first.endpoints, first.inCluster = true, true, true, true, true
	first.only = rules{}.only
	return r.activate(first)
}

// joinAsKubelet makes the run the kubelet of its node, whose pods it reports.
func (r *run) joinAsKubelet(ctx context.Context, straight kubernetes.Interface) error {
	reports, err := r.kubelet(r.plain)
	if err != nil {
		return err
	}
	reports.Timeout = kubeletPatience
	writer, err := typed(reports, nil)
	if err != nil {
		return err
	}
	reader, err := typed(r.kubelet(r.plain))
	if err != nil {
		return err
	}
	if r.mutator.own, err = newPods(ctx, r.random, r.node, straight, writer, r.record); err != nil {
		return err
	}
	pair := &pair{straight: r.source("pods", podsOf(straight, r.node)), remembered: true}
	pair.through = r.follow(ctx, "pods of kubelet", podsOf(reader, r.node))
	r.pairs = append(r.pairs, pair)
	return nil
}

func (r *run) follow(ctx context.Context, name string, of collection) *mirror {
	return follow(ctx, name, of, r.node, r.gone, r.record)
}

// stretches runs in stretches of changes with a pause after each.
func (r *run) stretches(ctx context.Context) error {
	if err := r.settle(ctx, "at the start"); err != nil {
		return err
	}
	for done := 0; done < r.mutations; {
		if r.daemon != nil && r.random.IntN(8) < r.faults {
			if err := r.goOffline(ctx, fmt.Sprintf("offline after %d changes", done)); err != nil {
				return err
			}
		}
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
			begun := time.Now()
			if err := r.mutator.one(ctx); err != nil {
				return fmt.Errorf("change %d: %w", done, err)
			}
			if took := time.Since(begun); took > slow {
				fmt.Printf("change %d took %.2f s\n", done, took.Seconds())
			}
			done++
		}
		if err := r.daemon.mend(ctx, r); err != nil {
			return err
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
		r.cutClients()
	case roll < 50:
		return r.cutServer(ctx)
	case roll < 60:
		// Clients reconnect exactly at the swap of the filters.
		err := r.reload()
		r.cutClients()
		return err
	case roll < 70:
		return errors.Join(r.reload(), r.cutServer(ctx))
	case roll < 72:
		r.restarts++
		r.restarted = true
		return r.command(ctx, "restart")
	case roll < 72+22*r.faults && r.daemon != nil:
		return r.daemon.mishap(r)
	}
	return nil
}

func (r *run) reload() error { return r.activate(randomRules(r.random)) }

// activate writes a configuration.
func (r *run) activate(next rules) error {
	r.reloads++
	next.generation = r.reloads
	r.rules, r.invalid = next, false
	r.record.Line(faults, "a configuration: %+v", next)
	return r.write(r.rules.manifest())
}

// breakConfiguration writes an invalid configuration, which leaves the filters unchanged. It is called only when the
// last valid ones are in force.
func (r *run) breakConfiguration() error {
	r.broken++
	r.invalid = true
	r.record.Line(faults, "an invalid configuration")
	return r.write(strings.ReplaceAll(r.rules.manifest(), "settings: {", "settings: {unknown: 1, ") + "  broken: [\n")
}

func (r *run) write(text string) error {
	aside := r.config + ".aside"
	if err := os.WriteFile(aside, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(aside, r.config)
}

func (r *run) cutClients() {
	r.cuts++
	r.record.Line(faults, "the connections of the clients are cut")
	r.link.Cut()
}

func (r *run) cutServer(ctx context.Context) error {
	r.cuts++
	return r.command(ctx, "cut")
}

// command sends a command to the control plane. The response arrives when it is done.
func (r *run) command(ctx context.Context, name string) error {
	r.record.Line(faults, "the link or the API server: %s", name)
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

// adminPage reads a page of Weir's admin port.
func (r *run) adminPage(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.admin+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(answer.Body)
	return string(body), errors.Join(err, answer.Body.Close())
}
