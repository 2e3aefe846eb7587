// Package export_weir_filter_module is the filter. It takes endpoints on nodes under maintenance out of use: kube-proxy
// gets EndpointSlices without them, or with them marked as not ready. A Service keeps all endpoints with the annotation
// `example.com/drain: ignore`. The generated code requires the name of the package.
package export_weir_filter_module

import (
	"encoding/json"
	"fmt"
	"strings"

	wit "go.bytecodealliance.org/pkg/wit/types"

	cluster "example.com/drain/weir_filter_cluster"
	log "example.com/drain/weir_filter_log"
	weir "example.com/drain/weir_filter_module"
	objects "example.com/drain/weir_filter_objects"
)

const drain = "example.com/drain"

// Set by Configure. The outcome of an object may depend only on the settings and on what Filter reads.
var (
	nodeLabel, action                           string
	servicePath, namePath, nodesPath, readyPath *objects.Path
)

func Describe() weir.Description {
	return weir.Description{Name: "drain", Version: "0.1.0", Summary: "Takes endpoints on nodes under maintenance out of use"}
}

func Configure(settings string) wit.Result[weir.Plan, string] {
	if err := parse(settings); err != nil {
		return wit.Err[weir.Plan](err.Error())
	}
	servicePath = objects.PathParse("metadata.labels['kubernetes.io/service-name']").Ok()
	namePath = objects.PathParse("metadata.name").Ok()
	nodesPath = objects.PathParse("endpoints[*].nodeName").Ok()
	readyPath = objects.PathParse("endpoints[*].conditions.ready").Ok()
	return wit.Ok[weir.Plan, string](weir.Plan{
		Matches: []string{"kube-proxy/endpointslices#get;list;watch"},
		Lookups: []weir.Lookup{
			{Resource: "services", MetadataOnly: true, Name: wit.None[string](), LabelSelector: wit.None[string]()},
			{Resource: "nodes", MetadataOnly: true, Name: wit.None[string](), LabelSelector: wit.Some(nodeLabel)},
		},
	})
}

func Filter(object *weir.Object) wit.Result[weir.Verdict, string] {
	defer collect()
	defer object.Drop() // the host counts the handles that a call holds
	verdict, err := filter(object)
	if err != nil {
		return wit.Err[weir.Verdict](err.Error())
	}
	return wit.Ok[weir.Verdict, string](verdict)
}

func filter(object *weir.Object) (weir.Verdict, error) {
	// The reads up to here are all that most objects cost, and the daemon replays them.
	nodes := cluster.Find("nodes", wit.None[string](), nodeLabel)
	defer nodes.Drop()
	if nodes.Count() == 0 {
		return weir.Verdict_Keep, nil
	}
	if kind := object.Kind(); kind != "EndpointSlice" {
		return 0, fmt.Errorf("expected an EndpointSlice, got a %s: correct the match rules", kind)
	}
	// The Service that the slice names in its label.
	if service := cluster.Referent("services", object, servicePath); service.IsSome() {
		defer service.Some().Drop()
		switch policy := service.Some().Annotation(drain).SomeOr(""); policy {
		case "":
		case "ignore":
			return weir.Verdict_Keep, nil
		default:
			log.Write(log.Level_Warn, fmt.Sprintf("annotation %s of the Service: expected ignore, got %s", drain, policy))
		}
	}

	// One host call reads a whole column, and one edit changes all rows.
	drained := map[string]bool{}
	each(nodes.Column(namePath), func(_ int, name string) { drained[name] = true })
	column := object.Column(nodesPath)
	rows := make([]bool, len(column.Ends))
	found := 0
	each(column, func(row int, node string) {
		if drained[node] {
			rows[row] = true
			found++
		}
	})
	if found == 0 {
		return weir.Verdict_Keep, nil
	}
	log.Write(log.Level_Debug, fmt.Sprintf("endpoints of %s are on nodes under maintenance", object.Name()))
	var edit wit.Result[wit.Unit, string]
	switch {
	case action == "unready":
		edit = object.SetRows(readyPath, bitmap(rows, true), objects.MakeValueBoolean(false))
	case found == len(rows):
		return weir.Verdict_Hide, nil
	default:
		edit = object.Retain(nodesPath, bitmap(rows, false))
	}
	if edit.IsErr() { // a refused edit
		return 0, fmt.Errorf("%s", edit.Err())
	}
	return weir.Verdict_Keep, nil
}

func parse(text string) error {
	settings := map[string]any{"action": "remove"}
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	for key, value := range settings {
		if key != "nodeLabel" && key != "action" {
			return fmt.Errorf("%s: unknown field", key)
		}
		if _, ok := value.(string); !ok {
			return fmt.Errorf("%s: invalid type: expected a string", key)
		}
	}
	var ok bool
	if nodeLabel, ok = settings["nodeLabel"].(string); !ok {
		return fmt.Errorf("nodeLabel: missing field")
	}
	if nodeLabel == "" || strings.Contains(nodeLabel, ",") {
		return fmt.Errorf("nodeLabel: expected one label")
	}
	if action = settings["action"].(string); action != "remove" && action != "unready" {
		return fmt.Errorf("action: unknown value: expected remove or unready")
	}
	return nil
}

// each calls visit with the rows of a column that are neither missing nor null.
func each(column objects.Column, visit func(row int, value string)) {
	start := uint32(0)
	for row, marked := range column.Ends {
		end := marked &^ (1 << 31)
		if marked == end { // the top bit marks a row without a value
			visit(row, column.Text[start:end])
		}
		start = end
	}
}

// bitmap returns the rows with this value: row i is bit i%8 of byte i/8.
func bitmap(rows []bool, value bool) []uint8 {
	bits := make([]uint8, (len(rows)+7)/8)
	for i, row := range rows {
		if row == value {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return bits
}
