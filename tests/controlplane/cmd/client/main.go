// Client is what real clients of Kubernetes do, through Weir and straight: client-go's informers, kube-proxy's trackers,
// and a long random run after which both sides must hold the same. It exits with 0 if all was as it must be.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// patience bounds a wait for what must come. Only a hang reaches it.
const patience = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	commands := map[string]func(context.Context, *sides) error{
		"informers": informers, "proxy": proxyRules, "converge": converge,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "client: one of informers, proxy, converge")
		os.Exit(64)
	}
	var s sides
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "the administrator's, straight to the API server")
	flags.StringVar(&s.weir, "weir", "", "Weir's URL")
	flags.StringVar(&s.weirCA, "weir-ca", "", "what its certificate is verified by, where that is https")
	flags.StringVar(&s.secure, "secure-weir", "", "its HTTPS port, for a random run whose seed decides so")
	flags.StringVar(&s.token, "token-file", "", "the credential that goes through Weir")
	flags.StringVar(&s.node, "node", "edge-a", "the node that Weir runs as")
	flags.StringVar(&s.control, "control", "", "where the connections between Weir and the API server are cut")
	flags.StringVar(&s.admin, "admin", "", "Weir's admin port, which reports the filters in force")
	flags.StringVar(&s.config, "config-file", "", "Weir's configuration, to be replaced")
	flags.IntVar(&s.mutations, "mutations", 3000, "how many changes are made")
	flags.Uint64Var(&s.seed, "seed", 0, "of the random run; 0 takes one from the clock")
	flags.BoolVar(&s.watchList, "watch-list", false, "informers begin with a watch-list (of a random run, the seed decides)")
	log := flags.String("log", os.DevNull, "where client-go tells what it does")
	_ = flags.Parse(os.Args[2:])
	if err := logTo(*log); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
	if err := commands[os.Args[1]](ctx, &s); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

// logTo leads client-go's log to a file. Watches that end and connections that are cut are what this is about: nobody needs
// to be told, but who looks for a fault.
func logTo(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	verbosity := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(verbosity)
	err = verbosity.Set("stderrthreshold", "FATAL")
	if path != os.DevNull {
		err = errors.Join(err, verbosity.Set("v", "7"))
	}
	klog.LogToStderr(false)
	klog.SetOutput(file)
	return err
}
