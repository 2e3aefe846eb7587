// Command schema writes the schema for protobuf objects. For each kind that the Kubernetes API serves as protobuf, it
// contains the JSON name, field numbers, type and presence rule of every field, by reflection over k8s.io/api.
//
//	go run . > kubernetes.schema
//
// A type that the table cannot represent is an error, so that no field is guessed.
package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"weir/schema/kinds"
)

// Types with their own JSON form.
var scalars = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time]():          "time",
	reflect.TypeFor[metav1.MicroTime]():     "micro",
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[intstr.IntOrString]():   "either",
	reflect.TypeFor[runtime.RawExtension](): "raw",
	reflect.TypeFor[metav1.FieldsV1]():      "raw",
	reflect.TypeFor[[]byte]():               "bytes",
}

var (
	object   = reflect.TypeFor[metav1.Object]()
	typeMeta = reflect.TypeFor[metav1.TypeMeta]()
)

type table struct {
	numbers  map[reflect.Type]int
	messages []message
}

type message struct {
	name   string
	fields []string
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	all, err := kinds.All()
	if err != nil {
		return err
	}
	var order []schema.GroupVersionKind
	for kind, known := range all {
		// Lists and options are not objects. Status, which reports failures, is one.
		if reflect.PointerTo(known).Implements(object) || kind.Kind == "Status" {
			order = append(order, kind)
		}
	}
	sort.Slice(order, func(i, j int) bool { return order[i].String() < order[j].String() })

	t := table{numbers: map[reflect.Type]int{}}
	var lines []string
	for _, kind := range order {
		number, err := t.message(all[kind])
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		lines = append(lines, fmt.Sprintf("kind %s %s %d", kind.GroupVersion(), kind.Kind, number),
			fmt.Sprintf("resource %s %s %s", plural.GroupVersion(), plural.Resource, kind.Kind))
	}
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintf(out, "kubernetes %s\n", version())
	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
	for _, one := range t.messages {
		fmt.Fprintf(out, "message %s\n", one.name)
		for _, field := range one.fields {
			fmt.Fprintln(out, field)
		}
	}
	return out.Flush()
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == "k8s.io/api" {
			return "v1" + strings.TrimPrefix(dep.Version, "v0")
		}
	}
	return "unknown"
}

// message assigns a number to a struct and to all structs that it contains.
func (t *table) message(of reflect.Type) (int, error) {
	if number, known := t.numbers[of]; known {
		return number, nil
	}
	number := len(t.messages)
	t.numbers[of] = number
	t.messages = append(t.messages, message{name: of.String()})
	var fields []string
	if err := t.fields(of, nil, &fields); err != nil {
		return 0, err
	}
	t.messages[number].fields = fields
	return number, nil
}

// fields writes `name numbers shape type presence` for each field. The numbers are those of the inlined structs around the
// field and its own, with a dot between. Of the protobuf tag only the number is used, because go-to-protobuf uses the Go
// type: the tags of podCIDRs and defaultMode have a wrong label and a wrong wire type.
func (t *table) fields(of reflect.Type, outer []string, fields *[]string) error {
	for i := range of.NumField() {
		field := of.Field(i)
		json, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		proto := strings.Split(field.Tag.Get("protobuf"), ",")
		if field.Type == typeMeta || json == "-" || !field.IsExported() {
			continue
		}
		if len(proto) < 3 {
			return fmt.Errorf("%s.%s has no protobuf tag", of, field.Name)
		}
		path := append(append([]string{}, outer...), proto[1])
		flags := "," + options + ","
		if json == "" {
			if field.Type.Kind() != reflect.Struct || !field.Anonymous {
				return fmt.Errorf("%s.%s is inlined and no struct", of, field.Name)
			}
			if err := t.fields(field.Type, path, fields); err != nil {
				return err
			}
			continue
		}
		shape, code, pointer, err := t.shape(field.Type, &path)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", of, field.Name, err)
		}
		presence := ""
		if pointer {
			presence += "p"
		}
		if strings.Contains(flags, ",omitempty,") {
			presence += "o"
		}
		if strings.Contains(flags, ",omitzero,") {
			presence += "z"
		}
		if presence == "" {
			presence = "-"
		}
		*fields = append(*fields, strings.Join([]string{json, strings.Join(path, "."), shape, code, presence}, " "))
	}
	return nil
}

// shape returns whether a field is one value, a list or a map, and its type. A slice that marshals itself (ExtraValue) is
// a message with the strings as its field 1, which is `texts` as the value of a map.
func (t *table) shape(of reflect.Type, path *[]string) (shape, code string, pointer bool, err error) {
	shape = "one"
	if of.Kind() == reflect.Pointer {
		of, pointer = of.Elem(), true
	}
	if _, known := scalars[of]; !known {
		switch {
		case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Uint8 && !pointer:
			return shape, "bytes", false, nil
		case of.Kind() == reflect.Slice && !pointer:
			if marshals(of) {
				*path = append(*path, "1")
			}
			shape, of = "list", of.Elem()
		case of.Kind() == reflect.Map && !pointer:
			if of.Key().Kind() != reflect.String {
				return "", "", false, fmt.Errorf("a map by %s", of.Key())
			}
			shape, of = "map", of.Elem()
		}
	}
	code, err = t.code(of)
	return shape, code, pointer, err
}

func (t *table) code(of reflect.Type) (string, error) {
	if code, known := scalars[of]; known {
		return code, nil
	}
	switch of.Kind() {
	case reflect.Bool:
		return "bool", nil
	case reflect.Int32:
		return "int32", nil
	case reflect.Int64:
		return "int64", nil
	case reflect.String:
		return "text", nil
	case reflect.Struct:
		number, err := t.message(of)
		return strconv.Itoa(number), err
	case reflect.Slice:
		if of.Elem().Kind() == reflect.String && marshals(of) {
			return "texts", nil
		}
	}
	return "", fmt.Errorf("a type that the table cannot say: %s", of)
}

// marshals returns whether a slice is a message of its own.
func marshals(of reflect.Type) bool {
	return reflect.PointerTo(of).Implements(reflect.TypeFor[interface{ Marshal() ([]byte, error) }]())
}
