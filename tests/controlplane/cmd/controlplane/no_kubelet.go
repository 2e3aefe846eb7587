//go:build realnode

package main

import "errors"

// kubelet is where the API server finds the kubelet of the node.
type kubelet struct {
	host string
	port int32
}

// startKubelet fails: the stub is written for the streaming server of one release of Kubernetes, and this control plane is of
// another.
func startKubelet(string) (*kubelet, error) {
	return nil, errors.New("this build needs --real-node")
}
