package main

import (
	encoding "encoding/json"
	"fmt"
	"sort"

	"k8s.io/apimachinery/pkg/api/equality"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// proxied compares kube-proxy's trackers after all events so far with new trackers of the final state. A port or an
// endpoint that no event removed stays in the former, even if the cache is right.
func proxied(is, wanted map[string]string) string {
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
