// Package export_weir_filter_module is the filter. It hides the objects whose annotation has the value "true". The
// generated code requires this name.
package export_weir_filter_module

import (
	"encoding/json"
	"errors"
	"fmt"

	wit "go.bytecodealliance.org/pkg/wit/types"

	weir "example.com/{{ident}}/weir_filter_module"
)

// annotation is set by Configure, which the host calls once before it filters objects. Keep no other state between
// calls: the outcome of an object may depend only on the settings and on what Filter reads.
var annotation string

func Describe() weir.Description {
	return weir.Description{Name: "{{name}}", Version: "0.1.0", Summary: "Hides objects with an annotation"}
}

func Configure(settings string) wit.Result[weir.Plan, string] {
	var err error
	if annotation, err = parse(settings); err != nil {
		return wit.Err[weir.Plan](err.Error())
	}
	return wit.Ok[weir.Plan, string](weir.Plan{Matches: []string{"kube-proxy/services#get;list;watch"}})
}

func Filter(object *weir.Object) wit.Result[weir.Verdict, string] {
	defer collect()
	defer object.Drop() // the host counts the handles that a call holds
	verdict := weir.Verdict_Keep
	if object.Annotation(annotation).SomeOr("") == "true" {
		verdict = weir.Verdict_Hide
	}
	return wit.Ok[weir.Verdict, string](verdict)
}

func parse(text string) (string, error) {
	var settings map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		return "", fmt.Errorf("settings: %w", err)
	}
	for key := range settings {
		if key != "annotation" {
			return "", fmt.Errorf("%s: unknown field", key)
		}
	}
	var name string
	if value, ok := settings["annotation"]; ok {
		if err := json.Unmarshal(value, &name); err != nil {
			return "", fmt.Errorf("annotation: %w", err)
		}
	}
	if name == "" {
		return "", errors.New("annotation: missing")
	}
	return name, nil
}
