// Node is the Kubernetes programs of a node and the controllers that a node depends on, in one binary: the first argument
// names the program, the rest are its own flags. They are the released sources, at the version of the control plane.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	programs := map[string]func() *cobra.Command{
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
		"kube-proxy":              proxy.NewProxyCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	if len(os.Args) > 1 {
		if program, found := programs[os.Args[1]]; found {
			command := program()
			command.SetArgs(os.Args[2:])
			os.Exit(cli.Run(command))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: node kubelet|kube-proxy|kube-controller-manager|kube-scheduler [flags]")
	os.Exit(64)
}
