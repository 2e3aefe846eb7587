package main

import (
	encoding "encoding/json"
	"errors"
	"fmt"
	"sort"

	"k8s.io/apimachinery/pkg/api/equality"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// difference returns the first difference, or an empty text.
func (r *run) difference() (string, error) {
	for _, pair := range r.pairs {
		if fault := pair.through.fault.Load(); fault != nil {
			return "", errors.New(*fault)
		}
		if r.daemon != nil && r.daemon.offline && !pair.remembered {
			continue
		}
		expected := map[string]runtime.Object{}
		for key, object := range pair.straight.all() {
			if shown := r.rules.shown(r.world, r.mutator.own.shown(object)); shown != nil {
				expected[key] = shown
				if pair.metadataOnly {
					expected[key] = metadataOfObject(shown)
				}
			}
		}
		held := pair.through.all()
		if pair.metadataOnly {
			// JSON names the kind PartialObjectMetadata, protobuf none.
			for key, object := range held {
				held[key] = metadataOfObject(object)
			}
		}
		if text := compare(expected, held); text != "" {
			return pair.through.name + ": " + text, nil
		}
		if pair.metadataOnly {
			continue
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
