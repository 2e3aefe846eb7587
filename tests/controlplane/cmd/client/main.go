// Client runs real Kubernetes clients, through Weir and directly: client-go's informers, kube-proxy's trackers, and a
// long random run at whose pauses both sides must be equal. It exits with 0 on success.
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

// patience is the hang guard of every wait but that for clients to connect again. Only a hang reaches it.
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
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "kubeconfig of the administrator, directly at the API server")
	flags.StringVar(&s.weir, "weir", "", "Weir's URL")
	flags.StringVar(&s.weirCA, "weir-ca", "", "CA file for Weir's HTTPS port")
	flags.StringVar(&s.secure, "secure-weir", "", "URL of Weir's HTTPS port; the seed selects the port of a random run")
	flags.StringVar(&s.token, "token-file", "", "bearer token for requests through Weir")
	flags.StringVar(&s.node, "node", "edge-a", "the node that Weir runs as")
	flags.StringVar(&s.control, "control", "", "URL of the control plane's commands: cut and restart")
	flags.StringVar(&s.admin, "admin", "", "URL of Weir's admin port")
	flags.StringVar(&s.config, "config-file", "", "Weir's configuration file, which a random run replaces")
	flags.IntVar(&s.mutations, "mutations", 3000, "number of changes")
	flags.Uint64Var(&s.seed, "seed", 0, "seed of the random run")
	flags.StringVar(&s.record, "record", "", "folder in which a failed random run leaves what happened")
	flags.BoolVar(&s.watchList, "watch-list", false, "start informers with a watch-list; in a random run the seed selects it")
	flags.BoolVar(&s.daemon, "daemon-commands", false, "ask on standard output for mishaps of Weir's process, as @kill; each is "+
		"answered by a line on standard input")
	flags.IntVar(&s.faults, "faults", 1, "with -daemon-commands, how many times as often as by default the process, its disk, "+
		"its clock and its link fail")
	log := flags.String("log", os.DevNull, "file for client-go's log")
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

// logTo sends client-go's log to a file. Ended watches and cut connections are part of the tests, so the log matters
// only when looking for a fault.
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
