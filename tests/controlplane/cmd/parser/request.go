package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
)

var resolver = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// The kinds of the resources that the test asks for. Groups that have a dot are of custom resources.
var kinds = map[string]schema.GroupVersionKind{
	"/pods":                           {Version: "v1", Kind: "Pod"},
	"/services":                       {Version: "v1", Kind: "Service"},
	"/namespaces":                     {Version: "v1", Kind: "Namespace"},
	"/nodes":                          {Version: "v1", Kind: "Node"},
	"/secrets":                        {Version: "v1", Kind: "Secret"},
	"/configmaps":                     {Version: "v1", Kind: "ConfigMap"},
	"/events":                         {Version: "v1", Kind: "Event"},
	"/replicationcontrollers":         {Version: "v1", Kind: "ReplicationController"},
	"batch/jobs":                      {Group: "batch", Version: "v1", Kind: "Job"},
	"discovery.k8s.io/endpointslices": {Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
}

// Resource returns what the API server authorizes, and how it reads the options of a list or a watch.
func resource(_ *wire, req *http.Request) []byte {
	info, err := resolver.NewRequestInfo(req)
	if err != nil {
		return []byte("error")
	}
	if !info.IsResourceRequest {
		return []byte("none")
	}
	parts := []string{
		info.Verb, info.APIGroup, info.APIVersion, info.Namespace, info.Resource, info.Subresource, info.Name,
		info.FieldSelector, info.LabelSelector,
	}
	for i, part := range parts {
		parts[i] = hex.EncodeToString([]byte(part))
	}
	text := strings.Join(parts, " ")
	if (info.Verb != "list" && info.Verb != "watch") || info.Subresource != "" {
		return []byte(text)
	}
	// The old paths are routed to a handler that always watches.
	prefix := "/api/" + info.APIVersion + "/watch/"
	if info.APIGroup != "" {
		prefix = "/apis/" + info.APIGroup + "/" + info.APIVersion + "/watch/"
	}
	return []byte(text + "\n" + options(req, info, strings.HasPrefix(req.URL.Path, prefix)))
}

// A storage notes the options that reach it.
type storage struct {
	rest.TableConvertor
	options *internalversion.ListOptions
}

var errNoted = errors.New("noted")

func (s *storage) NewList() runtime.Object { return nil }

func (s *storage) List(_ context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	s.options = options
	return nil, errNoted
}

func (s *storage) Watch(_ context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	s.options = options
	return nil, errNoted
}

// A convertor knows the fields of the built-in kinds. A custom resource may have any.
type convertor struct{ runtime.ObjectConvertor }

func (c convertor) ConvertFieldLabel(kind schema.GroupVersionKind, label, value string) (string, string, error) {
	if kind.Kind == "" {
		return label, value, nil
	}
	return c.ObjectConvertor.ConvertFieldLabel(kind, label, value)
}

func options(req *http.Request, info *request.RequestInfo, watches bool) string {
	kind, found := kinds[info.APIGroup+"/"+info.Resource]
	if !found && !strings.Contains(strings.TrimSuffix(info.APIGroup, ".k8s.io"), ".") {
		return "404"
	}
	scope := handlers.RequestScope{
		Namer:            handlers.ContextBasedNaming{},
		Serializer:       legacyscheme.Codecs,
		ParameterCodec:   legacyscheme.ParameterCodec,
		Convertor:        convertor{legacyscheme.Scheme},
		Kind:             kind,
		MetaGroupVersion: metav1.SchemeGroupVersion,
	}
	// The form of the response is not the question.
	req = req.WithContext(request.WithRequestInfo(req.Context(), info))
	req.Header = http.Header{}
	var noted storage
	response := status{header: http.Header{}}
	handlers.ListResource(&noted, &noted, &scope, watches, 0)(&response, req)
	if noted.options == nil {
		return strconv.Itoa(response.code)
	}
	o, seconds, initial := noted.options, "-", "-"
	if o.TimeoutSeconds != nil {
		seconds = strconv.FormatInt(*o.TimeoutSeconds, 10)
	}
	if o.SendInitialEvents != nil {
		initial = strconv.FormatBool(*o.SendInitialEvents)
	}
	return fmt.Sprintf("200 %s\n%s\n%t %t %s %s %d %x %x %x", labelText(o.LabelSelector), fieldText(o.FieldSelector),
		o.Watch, o.AllowWatchBookmarks, seconds, initial, o.Limit, o.ResourceVersion, o.ResourceVersionMatch, o.Continue)
}

func labelSelector(text string) []byte {
	selector, err := labels.Parse(text)
	if err != nil {
		return []byte("error")
	}
	return []byte("ok " + labelText(selector))
}

func fieldSelector(text string) []byte {
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return []byte("error")
	}
	return []byte("ok " + fieldText(selector))
}

// LabelText is a selector whose operators are as few as can be.
func labelText(selector labels.Selector) string {
	if selector == nil {
		return ""
	}
	requirements, _ := selector.Requirements()
	texts := make([]string, len(requirements))
	for i, requirement := range requirements {
		key, values := requirement.Key(), requirement.Values().List()
		set := func(one, many string) string {
			if len(values) == 1 {
				return key + one + values[0]
			}
			return key + " " + many + " (" + strings.Join(values, ",") + ")"
		}
		number := func(operator string) string {
			value, _ := strconv.ParseInt(values[0], 10, 64)
			return key + operator + strconv.FormatInt(value, 10)
		}
		switch requirement.Operator() {
		case selection.Exists:
			texts[i] = key
		case selection.DoesNotExist:
			texts[i] = "!" + key
		case selection.In, selection.Equals, selection.DoubleEquals:
			texts[i] = set("=", "in")
		case selection.NotIn, selection.NotEquals:
			texts[i] = set("!=", "notin")
		case selection.GreaterThan:
			texts[i] = number(">")
		case selection.LessThan:
			texts[i] = number("<")
		}
	}
	return strings.Join(texts, ",")
}

func fieldText(selector fields.Selector) string {
	if selector == nil {
		return ""
	}
	var texts []string
	for _, requirement := range selector.Requirements() {
		texts = append(texts, requirement.Field+string(requirement.Operator)+fields.EscapeValue(requirement.Value))
	}
	return strings.Join(texts, ",")
}
