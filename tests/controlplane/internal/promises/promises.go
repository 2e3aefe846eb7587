// Package promises checks what one client of a resource gets. It is pure: it reads no clock and no network, and the caller
// passes in what the client has requested and received, in that order. It keeps one entry for each object of the client.
//
// The lines named below are those of one-watch.md and rules.md, the references of the project.
package promises

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Limit is how long a client's cache may differ while its watch is open and nothing else changes.
const Limit = 5 * time.Second

// Object is one state of an object.
type Object struct {
	// Name is for messages.
	Name, UID  string
	Version    uint64
	Generation int64
}

// Kind is the type of an event of a watch.
type Kind string

// The kinds of events, with the words of the API. An ERROR has no object and is none of them.
const (
	Added    Kind = "ADDED"
	Modified Kind = "MODIFIED"
	Deleted  Kind = "DELETED"
	Bookmark Kind = "BOOKMARK"
	// EndOfInitial is the bookmark that ends the initial events of a watch-list.
	EndOfInitial Kind = "BOOKMARK at the end of the initial events"
)

// Stream is what one client has received.
type Stream struct {
	// departed returns a version at which an object is deleted, and whether it is.
	departed func(uid string) (uint64, bool)
	// seen has the newest state of each object that the client was shown. A hidden object stays in it.
	seen map[string]Object
	// newest is the newest version that the client has reached on any list or watch.
	newest uint64

	// asked is the version that the current list or watch was requested at. 0 is any version, and exact is whether it is
	// one: a request without a version is a consistent read.
	asked uint64
	exact bool
	// reached is the newest version of the current watch: the one that it was requested at, or a later one of its events.
	reached uint64
	// latest is the version of its last event, which the client continues from.
	latest uint64
	// initial has the initial events of a watch-list until their end.
	initial   map[string]Object
	beginning bool
}

// New returns a client that has received nothing.
func New(departed func(uid string) (uint64, bool)) *Stream {
	return &Stream{departed: departed, seen: map[string]Object{}}
}

// Bury drops what is known of objects that do not exist any more, and returns their UIDs. From here on they are departed.
func (s *Stream) Bury(exists func(uid string) bool) []string {
	var buried []string
	for uid := range s.seen {
		if !exists(uid) {
			buried = append(buried, uid)
			delete(s.seen, uid)
		}
	}
	return buried
}

// Listed checks a list that was requested at a version; an empty text is none.
func (s *Stream) Listed(asked string, version uint64, items []Object) error {
	s.request(asked)
	return s.state("list", version, items)
}

// Opened begins a watch from a version, with initial events or without.
func (s *Stream) Opened(asked string, initial bool) {
	s.request(asked)
	s.reached, s.latest = s.asked, s.asked
	s.initial, s.beginning = map[string]Object{}, initial
}

func (s *Stream) request(asked string) {
	s.asked, s.exact = 0, asked != ""
	if s.exact {
		// Versions that are no numbers are refused by the server.
		_, _ = fmt.Sscan(asked, &s.asked)
	}
}

// Event checks an event of the current watch.
func (s *Stream) Event(kind Kind, object Object) error {
	if s.beginning {
		return s.begin(kind, object)
	}
	var err error
	switch kind {
	case Added, Modified:
		err = s.shown(object)
	case Bookmark, EndOfInitial:
		// one-watch.md 40: a BOOKMARK is at the newest version that this stream has sent, or higher; 37 (1): at V.
		if object.Version < s.reached {
			err = fmt.Errorf("a bookmark went back from version %d to %d", s.reached, object.Version)
		}
	case Deleted:
		// A deletion without memory is allowed, whatever the client holds: one-watch.md 37, 39.
	}
	s.latest = object.Version
	s.reached = max(s.reached, object.Version)
	s.newest = max(s.newest, s.reached)
	return err
}

// begin collects initial events. They are a list, whose version is that of the bookmark at their end; events of the time
// until then are in it. A client drops what it has of them when the watch ends before.
func (s *Stream) begin(kind Kind, object Object) error {
	switch kind {
	case Added, Modified:
		s.initial[object.UID] = object
	case Deleted:
		delete(s.initial, object.UID)
	case EndOfInitial:
		items := slices.SortedFunc(maps.Values(s.initial), func(a, b Object) int { return cmp.Compare(a.Version, b.Version) })
		s.initial, s.beginning = nil, false
		s.reached, s.latest = object.Version, object.Version
		return s.state("watch-list", object.Version, items)
	case Bookmark:
	}
	return nil
}

// state checks a complete state: a list, or the initial events of a watch-list. Nothing in it may be of before what the client
// has seen, as it is not older than the requested version (rules.md 24), and consistent without one (one-watch.md 54).
func (s *Stream) state(what string, version uint64, items []Object) error {
	if version < s.asked {
		return fmt.Errorf("a %s at version %d is older than the requested version %d", what, version, s.asked)
	}
	if !s.exact && version < s.newest {
		return fmt.Errorf("a consistent %s went back from version %d to %d", what, s.newest, version)
	}
	for _, item := range items {
		if item.Version > version {
			return fmt.Errorf("%s at version %d is newer than its %s at version %d", item.Name, item.Version, what, version)
		}
		if s.isDeleted(item.UID, version) {
			return cameBack(item)
		}
		if was, known := s.seen[item.UID]; known && item.Version < was.Version {
			return wentBack(was, item)
		}
		if _, departed := s.departed(item.UID); departed {
			continue
		}
		if err := s.keep(item); err != nil {
			return err
		}
	}
	s.newest = max(s.newest, version)
	return nil
}

// shown checks an ADDED or MODIFIED.
//
// An old state is allowed in one case, where its version is above all that this watch was requested at and has sent. Then it is an
// event of the history after the requested version (the table in one-watch.md 27-35: "the events", "the catch-up"), which the
// client gets a second time. It has requested so old a version as its last watch was cut amid objects that were sent again: they
// keep their own versions, and the BOOKMARK comes after them (40). "Repeating is safe", and a cut may be between any two
// events (48). What is sent again at or below the version that the watch has reached is the present state, or a
// difference: nothing in it may be old (37, 40).
func (s *Stream) shown(object Object) error {
	repeated := object.Version > s.reached
	if _, departed := s.departed(object.UID); departed {
		if !repeated && s.isDeleted(object.UID, s.reached) {
			return cameBack(object)
		}
		return nil
	}
	if was, known := s.seen[object.UID]; known && object.Version < was.Version {
		if repeated {
			return nil
		}
		return wentBack(was, object)
	}
	return s.keep(object)
}

// isDeleted returns whether an object is deleted at this version, or at one that the client has reached. A state of before may
// have it: the deletion comes later.
func (s *Stream) isDeleted(uid string, at uint64) bool {
	version, departed := s.departed(uid)
	return departed && max(at, s.newest) >= version
}

// keep remembers a state that is at least as new as the last one. Its generation must be, too.
func (s *Stream) keep(object Object) error {
	was := s.seen[object.UID]
	s.seen[object.UID] = object
	if object.Generation < was.Generation {
		return fmt.Errorf("%s of UID %s went back from generation %d at version %d to generation %d at version %d",
			object.Name, object.UID, was.Generation, was.Version, object.Generation, object.Version)
	}
	return nil
}

// AtRest checks what holds when the client has everything: it must not continue from before the newest version that
// its watch has sent. The BOOKMARK after objects that are sent again is for that (one-watch.md 37 (3), 40; rules.md 22).
func (s *Stream) AtRest() error {
	if !s.beginning && s.latest < s.reached {
		return fmt.Errorf("the watch has reached version %d, and its last event is at %d", s.reached, s.latest)
	}
	return nil
}

func cameBack(is Object) error {
	return fmt.Errorf("%s of UID %s came back after its deletion, at version %d", is.Name, is.UID, is.Version)
}

func wentBack(was, is Object) error {
	return fmt.Errorf("%s of UID %s went back from version %d to %d", is.Name, is.UID, was.Version, is.Version)
}

// Clock measures how long a client's watch was open since the last change or fault. A watch that ends and opens again
// and again does not begin anew: its times add up.
type Clock struct {
	begun, opened time.Time
	open          bool
	spent         time.Duration
}

// Begin is called when the last change or fault is over.
func (c *Clock) Begin(now time.Time) { c.begun, c.spent = now, 0 }

// Opened is called when the server has accepted a watch.
func (c *Clock) Opened(now time.Time) {
	c.spent = c.Elapsed(now)
	c.opened, c.open = now, true
}

// Closed is called when the watch has ended.
func (c *Clock) Closed(now time.Time) {
	c.spent, c.open = c.Elapsed(now), false
}

// Elapsed returns how long the watch was open.
func (c *Clock) Elapsed(now time.Time) time.Duration {
	if !c.open {
		return c.spent
	}
	since := c.opened
	if since.Before(c.begun) {
		since = c.begun
	}
	return c.spent + now.Sub(since)
}

// Late returns an error for a client that differs and had time enough.
func (c *Clock) Late(now time.Time) error {
	if elapsed := c.Elapsed(now); elapsed > Limit {
		return fmt.Errorf("not equal after its watch was open for %.2f s, %v are allowed", elapsed.Seconds(), Limit)
	}
	return nil
}

// IsOpen returns whether the watch is.
func (c *Clock) IsOpen() bool { return c.open }
