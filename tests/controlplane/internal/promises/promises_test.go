package promises

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func at(uid string, version uint64) Object {
	return Object{Name: "one/" + uid, UID: uid, Version: version, Generation: 1}
}

func generation(object Object, number int64) Object {
	object.Generation = number
	return object
}

// client is a made-up history of one client. Each step returns what is wrong with it.
type client struct {
	*Stream
	gone map[string]uint64
}

// step is one thing that a client receives.
type step func(client) error

func list(asked string, version uint64, items ...Object) step {
	return func(c client) error { return c.Listed(asked, version, items) }
}

func watch(asked string) step {
	return func(c client) error { c.Opened(asked, false); return nil }
}

func watchList(asked string) step {
	return func(c client) error { c.Opened(asked, true); return nil }
}

func event(kind Kind, object Object) step {
	return func(c client) error { return c.Event(kind, object) }
}

func bookmark(version uint64) step { return event(Bookmark, Object{Version: version}) }

func end(version uint64) step { return event(EndOfInitial, Object{Version: version}) }

// departs is a pause at which the object is deleted at this version.
func departs(uid string, version uint64) step {
	return func(c client) error {
		c.gone[uid] = version
		c.Bury(func(other string) bool { return other != uid })
		return nil
	}
}

func rest(c client) error { return c.AtRest() }

// play returns what the last step finds. No step before it may find anything.
func play(t *testing.T, steps ...step) error {
	t.Helper()
	gone := map[string]uint64{}
	c := client{New(func(uid string) (uint64, bool) { version, deleted := gone[uid]; return version, deleted }), gone}
	for i, step := range steps {
		err := step(c)
		if i == len(steps)-1 {
			return err
		}
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	return nil
}

func TestABrokenPromiseIsFound(t *testing.T) {
	for name, broken := range map[string]struct {
		found string
		steps []step
	}{
		"a deleted object in a list": {"came back", []step{
			list("0", 10, at("a", 5)), departs("a", 15), list("10", 20, at("a", 5)),
		}},
		"a deleted object in a consistent list": {"came back", []step{
			list("0", 10, at("a", 5)), departs("a", 15), list("", 20, at("a", 5)),
		}},
		"a deleted object in a list of before that a client gets which has reached its deletion": {"came back", []step{
			list("0", 10, at("a", 5)), watch("10"), event(Deleted, at("a", 15)), event(Modified, at("b", 7)), departs("a", 15),
			list("7", 12, at("a", 5)),
		}},
		"a deleted object among initial events": {"came back", []step{
			list("0", 10, at("a", 5)), departs("a", 15), watchList("10"), event(Added, at("a", 5)), end(20),
		}},
		"a deleted object in a present state": {"came back", []step{
			list("0", 10, at("a", 5)), watch("10"), event(Deleted, at("a", 12)), departs("a", 12),
			watch("12"), event(Modified, at("a", 5)),
		}},
		"a deleted object in a difference, at the version that the watch has reached": {"came back", []step{
			list("0", 10, at("a", 5)), departs("a", 15), watch("10"), bookmark(20), event(Added, at("a", 14)),
		}},
		"an old state in a list": {"went back", []step{
			list("0", 10, at("a", 9)), list("10", 10, at("a", 5)),
		}},
		"an old state among initial events": {"went back", []step{
			list("0", 10, at("a", 9)), watchList(""), event(Added, at("a", 5)), end(11),
		}},
		"an old state in a watch": {"went back", []step{
			list("0", 10, at("a", 9)), watch("10"), event(Modified, at("a", 5)),
		}},
		"an old state in a watch that has sent a newer one": {"went back", []step{
			list("0", 10), watch("10"), event(Added, at("a", 12)), event(Modified, at("a", 11)),
		}},
		"an old state of an object that was hidden in between": {"went back", []step{
			list("0", 10, at("a", 9)), watch("10"), event(Deleted, at("a", 9)), bookmark(10), event(Added, at("a", 5)),
		}},
		"an old state at the version that a cut watch continues from": {"went back", []step{
			list("0", 10, at("a", 9), at("b", 5)), watch("10"), event(Modified, at("b", 5)), watch("5"), event(Modified, at("a", 5)),
		}},
		"an old generation in a watch": {"generation 1", []step{
			list("0", 10, generation(at("a", 9), 2)), watch("10"), event(Modified, generation(at("a", 11), 1)),
		}},
		"an old generation in a list": {"generation 1", []step{
			list("0", 10, generation(at("a", 9), 2)), list("10", 12, generation(at("a", 9), 1)),
		}},
		"a list that is older than its version":       {"older than the requested", []step{list("10", 9)}},
		"a watch-list that is older than its version": {"older than the requested", []step{watchList("10"), end(9)}},
		"a consistent list that is older than a bookmark": {"consistent list went back", []step{
			list("0", 10), watch("10"), bookmark(20), list("", 15),
		}},
		"a consistent watch-list that is older than an event": {"consistent watch-list went back", []step{
			list("0", 10), watch("10"), event(Added, at("a", 20)), watchList(""), end(15),
		}},
		"an object that is newer than its list":     {"is newer than", []step{list("0", 10, at("a", 11))}},
		"a bookmark below the version of its watch": {"bookmark went back", []step{watch("10"), bookmark(9)}},
		"a bookmark below an event": {"bookmark went back", []step{
			watch("10"), event(Added, at("a", 12)), bookmark(11),
		}},
		"a bookmark below the initial events": {"bookmark went back", []step{watchList(""), end(10), bookmark(9)}},
		"no bookmark after an object that was sent again": {"its last event is at 5", []step{
			list("0", 10, at("a", 5)), watch("10"), event(Modified, at("a", 5)), rest,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := play(t, broken.steps...); err == nil || !strings.Contains(err.Error(), broken.found) {
				t.Fatalf("found %v, expected %q", err, broken.found)
			}
		})
	}
}

func TestWhatIsAllowedIsNotFound(t *testing.T) {
	for name, steps := range map[string][]step{
		"events, a bookmark, and rest": {
			list("0", 10, at("a", 5)), watch("10"), event(Modified, at("a", 11)), event(Added, at("b", 12)),
			event(Deleted, at("a", 13)), bookmark(20), rest,
		},
		"a difference with its bookmark": {
			list("0", 10, at("a", 5)), watch("10"), event(Deleted, at("a", 5)), event(Added, at("b", 6)), bookmark(10), rest,
		},
		"a present state in its three parts": {
			list("0", 10, at("a", 5), at("b", 6)), watch("10"), event(Deleted, at("a", 10)), event(Modified, at("b", 6)),
			bookmark(10), event(Added, at("c", 14)), bookmark(15), rest,
		},
		"old states, again after a cut amid objects that were sent again": {
			list("0", 10, at("a", 9), at("b", 5)), watch("10"), event(Modified, at("b", 5)), watch("5"),
			event(Modified, at("a", 7)), event(Modified, at("a", 9)), rest,
		},
		"a deleted object, again after a cut amid objects that were sent again": {
			list("0", 10, at("a", 9), at("b", 5)), watch("10"), event(Deleted, at("a", 11)), departs("a", 11),
			event(Modified, at("b", 5)), watch("5"), event(Modified, at("a", 9)), event(Deleted, at("a", 11)), rest,
		},
		"a deleted object in a state of before, to a client that has not reached its deletion": {
			list("0", 10, at("a", 9)), departs("a", 15), list("10", 12, at("a", 9)), watch("12"), event(Modified, at("a", 9)),
			event(Deleted, at("a", 15)), rest,
		},
		"another object of a deleted one's name": {
			list("0", 10, at("a", 9)), departs("a", 12), watch("10"), event(Added, at("a2", 13)), rest,
		},
		"a watch-list that ends before its bookmark": {
			list("0", 10, at("a", 5)), watchList(""), event(Added, at("a", 12)), watchList("10"), event(Added, at("a", 11)), end(11), rest,
		},
		"events amid initial events": {
			watchList(""), event(Added, at("a", 5)), event(Added, at("b", 6)), event(Modified, at("a", 11)),
			event(Deleted, at("b", 12)), end(12), rest,
		},
		"a deletion of an object that the client never had": {watch("10"), event(Deleted, at("a", 10)), rest},
	} {
		t.Run(name, func(t *testing.T) {
			if err := play(t, steps...); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestWhatDoesNotExistIsBuried(t *testing.T) {
	s := New(func(string) (uint64, bool) { return 0, false })
	if err := s.Listed("0", 10, []Object{at("a", 5), at("b", 6)}); err != nil {
		t.Fatal(err)
	}
	exists := func(uid string) bool { return uid == "b" }
	if buried := s.Bury(exists); !slices.Equal(buried, []string{"a"}) {
		t.Fatal(buried)
	}
	if buried := s.Bury(exists); buried != nil {
		t.Fatal(buried)
	}
}

func TestTheLimitIsFiveSecondsOfAnOpenWatch(t *testing.T) {
	begun := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return begun.Add(time.Duration(seconds * float64(time.Second))) }
	var c Clock
	c.Opened(at(-100))
	c.Begin(at(0))
	if err := c.Late(at(5)); err != nil {
		t.Fatal(err)
	}
	if c.Late(at(5.1)) == nil {
		t.Fatal("a watch that was open all the time has no more than five seconds")
	}
	c.Closed(at(2))
	if c.IsOpen() || c.Late(at(60)) != nil {
		t.Fatal("a client that waits to connect again is not late")
	}
	c.Opened(at(60))
	if err := c.Late(at(63)); err != nil {
		t.Fatal(err)
	}
	if c.Late(at(63.1)) == nil {
		t.Fatal("the times of two watches add up")
	}
	c.Begin(at(70))
	if c.Elapsed(at(71)) != time.Second {
		t.Fatal("a new pause begins at nothing")
	}
}
