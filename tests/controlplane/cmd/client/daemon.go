package main

import (
	"bufio"
	"context"
	encoding "encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	clients "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"weir/controlplane/internal/record"
)

// daemon is what a run does to Weir's process and to its link. The test that started this program has the process: it
// obeys commands on standard output and answers each with a line on standard input.
type daemon struct {
	replies *bufio.Scanner
	record  *record.Record
	// offline is whether the API server is out of Weir's reach.
	offline bool
	// full is whether the disk of the cache is.
	full bool
	// wild is whether the clock is where no certificate is valid.
	wild bool

	kills, stops, reboots, outages, silences, fullDisks, jumps int
}

// valid are offsets of the clock at which certificates are valid: they begin an hour ago and last a day.
var valid = []time.Duration{0, 0, -50 * time.Minute, -5 * time.Minute, -3 * time.Second, 3 * time.Second, 5 * time.Minute, 20 * time.Hour}

// invalid are offsets at which Weir cannot reach the API server, as its certificate is not valid.
var invalid = []time.Duration{-20 * 365 * 24 * time.Hour, -2 * time.Hour, 48 * time.Hour, 10 * 365 * 24 * time.Hour}

func (d *daemon) counts() string {
	return fmt.Sprintf("%d kills and %d stops of the daemon, %d restarts of the node, %d times offline, %d of them in silence, %d full disks, %d jumps of the clock",
		d.kills, d.stops, d.reboots, d.outages, d.silences, d.fullDisks, d.jumps)
}

// command asks the test and waits until it is done.
func (d *daemon) command(words ...any) error {
	begun := time.Now()
	d.record.Line(faults, "the daemon: %v", words)
	defer func() {
		if took := time.Since(begun); took > slow {
			fmt.Printf("%v took %.2f s\n", words, took.Seconds())
		}
	}()
	fmt.Printf("@%s", fmt.Sprintln(words...))
	if !d.replies.Scan() {
		return errors.Join(d.replies.Err(), fmt.Errorf("no reply to %v", words))
	}
	if reply := d.replies.Text(); reply != "done" {
		return fmt.Errorf("%v: %s", words, reply)
	}
	return nil
}

// mishap does one of the things that do not depend on the link.
func (d *daemon) mishap(r *run) error {
	switch roll := r.random.IntN(10); {
	case roll < 5:
		return d.end(r)
	case roll < 7:
		return d.jump(valid[r.random.IntN(len(valid))], false)
	case roll < 8:
		return d.jump(invalid[r.random.IntN(len(invalid))], true)
	case d.full:
		d.full = false
		return d.command("free")
	default:
		d.full = true
		d.fullDisks++
		return d.command("fill")
	}
}

// end ends the process, mostly without warning, and starts another one.
func (d *daemon) end(r *run) error {
	if r.invalid {
		r.invalid = false
		if err := r.write(r.rules.manifest()); err != nil {
			return err
		}
	}
	if r.random.IntN(5) == 0 {
		d.stops++
		return d.command("stop")
	}
	d.kills++
	return d.command("kill")
}

// reboot ends the process without warning, and starts it as after a restart of the node.
func (d *daemon) reboot(r *run) error {
	d.reboots++
	r.mutator.own.rebooted()
	return d.command("reboot")
}

func (d *daemon) jump(offset time.Duration, wild bool) error {
	d.jumps++
	d.wild = wild
	return d.command("clock", int64(offset.Seconds()))
}

// mend ends what keeps Weir from the API server. A full disk stays, mostly.
func (d *daemon) mend(ctx context.Context, r *run) error {
	if d == nil {
		return nil
	}
	var err error
	if d.wild {
		err = d.jump(0, false)
	}
	if d.offline {
		d.offline = false
		err = errors.Join(err, r.command(ctx, "up"), r.mutator.own.online(ctx))
	}
	if d.full && r.random.IntN(3) == 0 {
		d.full = false
		err = errors.Join(err, d.command("free"))
	}
	return err
}

// goOffline takes the link away after everything is on disk. What clients hold must not change by that, and is
// filtered by other filters, also after a kill. The link stays away: the changes that follow are made out of Weir's
// sight.
func (r *run) goOffline(ctx context.Context, when string) error {
	d := r.daemon
	if d.full {
		d.full = false
		if err := d.command("free"); err != nil {
			return err
		}
	}
	if err := r.committed(ctx); err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	d.offline = true
	d.outages++
	state := "down"
	if r.random.IntN(3) == 0 {
		d.silences++
		state = "silent"
	}
	if err := r.command(ctx, state); err != nil {
		return err
	}
	for range 1 + r.random.IntN(2) {
		if r.random.IntN(2) == 0 {
			if err := r.reloadOffline(); err != nil {
				return err
			}
		}
		switch r.random.IntN(4) {
		case 0, 1:
			if err := d.end(r); err != nil {
				return err
			}
		case 2:
			if err := d.reboot(r); err != nil {
				return err
			}
		}
		if err := r.mutator.own.offline(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", when, err)
		}
		if err := r.settle(ctx, when); err != nil {
			return err
		}
	}
	return nil
}

// reloadOffline changes settings of filters whose lookups are known, as no others can be had: preference lists look up what
// nothing else does.
func (r *run) reloadOffline() error {
	next, random := r.rules, randomRules(r.random)
	next.discard, next.keepBalancers, next.drop = random.discard, random.keepBalancers, random.drop
	next.lists = next.lists && random.lists
	return r.activate(next)
}

// committed waits until Weir has all lookups, and what its caches hold is on disk. A daemon that was killed serves before
// it has them.
func (r *run) committed(ctx context.Context) error {
	return eventually(ctx, func() error {
		body, err := r.adminPage(ctx, "/filters")
		if err != nil {
			return err
		}
		var filters struct {
			Lookups []struct {
				Resource string
				Synced   bool
			}
		}
		if err := encoding.Unmarshal([]byte(body), &filters); err != nil {
			return err
		}
		for _, lookup := range filters.Lookups {
			if !lookup.Synced {
				return fmt.Errorf("the lookup of %s has no objects yet: %s", lookup.Resource, body)
			}
		}
		body, err = r.adminPage(ctx, "/caches")
		if err != nil {
			return err
		}
		var caches struct {
			Stores []struct {
				Resource, ResourceVersion, Identity string
				Disk                                *struct{ ResourceVersion string }
			}
		}
		if err := encoding.Unmarshal([]byte(body), &caches); err != nil {
			return err
		}
		for _, store := range caches.Stores {
			// What one client reads is in memory only.
			if strings.HasPrefix(store.Identity, "private") {
				continue
			}
			if store.Disk == nil || store.Disk.ResourceVersion != store.ResourceVersion {
				return fmt.Errorf("%s is not on disk at version %s: %s", store.Resource, store.ResourceVersion, body)
			}
		}
		return nil
	})
}

// metadataClient returns a client of metadata in the encoding of the configuration. client-go's own knows protobuf only.
func metadataClient(config *rest.Config, err error) (clients.Interface, error) {
	if err != nil {
		return nil, err
	}
	if config.ContentType == json {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return asJSON{next} })
	}
	return clients.NewForConfig(config)
}

type asJSON struct{ next http.RoundTripper }

func (a asJSON) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	accept := strings.ReplaceAll(request.Header.Get("Accept"), protobuf, json)
	request.Header.Set("Accept", accept)
	return a.next.RoundTrip(request)
}
