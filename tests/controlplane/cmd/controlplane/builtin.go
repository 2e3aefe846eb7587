//go:build !assets

package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// program returns the command of a part of the control plane: this program, which contains all of them.
func program(name string) (string, []string, error) {
	own, err := os.Executable()
	return own, []string{"run", name}, err
}

// builtin runs one part and does not return.
func builtin(name string, arguments []string) {
	switch name {
	case "etcd":
		etcdmain.Main(append([]string{name}, arguments...))
	case "kube-apiserver":
		command := app.NewAPIServerCommand()
		command.SetArgs(arguments)
		os.Exit(cli.Run(command))
	default:
		fmt.Fprintf(os.Stderr, "controlplane: no part is called %q\n", name)
		os.Exit(64)
	}
}
