package main

import (
	"os"
	"strings"

	feature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/features"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	protobuf = "application/vnd.kubernetes.protobuf"
	json     = "application/json"
)

// sides are the two routes to the same cluster, and the flags of a run.
type sides struct {
	// plain is Weir's port for clients of the node, weir the one that the seed has selected.
	kubeconfig, plain, weir, weirCA, secure, token, node, control, admin, config, record string
	mutations, faults                                                                    int
	seed                                                                                 uint64
	watchList, daemon                                                                    bool
}

// setWatchList selects whether reflectors start with a watch-list. kube-proxy's packages install Kubernetes' own
// feature gates in place of client-go's, so that client-go's environment variables have no effect.
func (s *sides) setWatchList() error {
	return feature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.WatchListClient): s.watchList})
}

// straight is the administrator's direct route.
func (s *sides) straight() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.ContentType = protobuf
	config.AcceptContentTypes = protobuf + "," + json
	return config, nil
}

// through is the route of a component of this name at this URL of Weir.
func (s *sides) through(url, component, encoding string) (*rest.Config, error) {
	token, err := os.ReadFile(s.token)
	if err != nil {
		return nil, err
	}
	config := &rest.Config{Host: url, BearerToken: strings.TrimSpace(string(token)), QPS: -1}
	if strings.HasPrefix(url, "https:") {
		config.CAFile = s.weirCA
	}
	config.UserAgent = component + "/v1.34.2 (linux/amd64) kubernetes/test"
	config.ContentType = encoding
	config.AcceptContentTypes = json
	if encoding == protobuf {
		config.AcceptContentTypes = protobuf + "," + json
	}
	return config, nil
}

func typed(config *rest.Config, err error) (kubernetes.Interface, error) {
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// kubelet is the route of the node's kubelet: without a credential, so that Weir attaches that of the node.
func (s *sides) kubelet(url string) (*rest.Config, error) {
	config, err := s.through(url, "kubelet", protobuf)
	if err == nil {
		config.BearerToken = ""
	}
	return config, err
}

// untyped reads JSON whatever the configuration: custom resources have no other encoding.
func untyped(config *rest.Config, err error) (dynamic.Interface, error) {
	if err != nil {
		return nil, err
	}
	return dynamic.NewForConfig(config)
}
