// Controlplane is a real Kubernetes control plane for tests: etcd and kube-apiserver with certificates of a CA made at
// each start, RBAC, service-account tokens, OpenYurt's CRDs, and a stub of one node's kubelet, unless a real one comes.
//
// It prints one line of JSON when it is ready. It ends on SIGTERM, SIGINT or the end of its standard input, so that it
// never outlives the test that started it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"weir/controlplane/internal/cut"
)

// patience is the hang guard of every wait of a start. Only a hang reaches it.
const patience = 2 * time.Minute

// ready is the line for the test that started it.
type ready struct {
	// Server is the API server's URL.
	Server string `json:"server"`
	// Control accepts POST /cut, which resets all connections of the kubeconfigs NAME-cut; POST /down, which refuses them
	// until POST /up; POST /silent, which passes nothing on until then; POST /restart, which kills the API server and
	// responds when a new one is ready; POST /backup, which keeps a copy of etcd's data; and POST /restore, which puts the
	// copy back. Both restart etcd and the API server, too.
	Control string `json:"control"`
	// Version is the version of the API server.
	Version string `json:"version"`
	// Folder holds NAME.kubeconfig and NAME.token of each identity.
	Folder string `json:"folder"`
}

// options are the flags.
type options struct {
	manifests, names list
	address          string
	realNode         bool
}

// list is a flag of several values.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

// Set adds comma-separated values.
func (l *list) Set(text string) error {
	*l = append(*l, strings.FieldsFunc(text, func(r rune) bool { return r == ',' })...)
	return nil
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "run" {
		builtin(os.Args[2], os.Args[3:])
		return
	}
	folder := flag.String("data-dir", "", "where everything is kept; without it, a folder of its own that goes at the end")
	var o options
	flag.Var(&o.manifests, "apply", "manifests to install, separated by commas")
	flag.StringVar(&o.address, "address", "127.0.0.1", "where the API server listens, at any free port on loopback, else at 6443")
	flag.Var(&o.names, "names", "more names and addresses for the serving certificates, separated by commas")
	flag.BoolVar(&o.realNode, "real-node", false, "a kubelet and controllers come from elsewhere: no stub of a kubelet, and "+
		"pods get service accounts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, ended := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended()
	}()
	if err := temporary(ctx, *folder, &o); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

// temporary serves from a new folder and removes it at the end, unless a folder is given.
func temporary(ctx context.Context, folder string, o *options) error {
	if folder != "" {
		return serve(ctx, folder, o)
	}
	folder, err := os.MkdirTemp("", "controlplane-")
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, folder, o), os.RemoveAll(folder))
}

func serve(ctx context.Context, folder string, o *options) error {
	// The libraries log failing commands and cut connections, which are part of the tests.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	authority, err := newAuthority(folder, o.names)
	if err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	plane, err := startPlane(ctx, folder, o)
	if err != nil {
		return err
	}
	defer plane.stop()
	proxy, err := cut.Start(plane.address)
	if err != nil {
		return fmt.Errorf("the proxy that cuts: %w", err)
	}
	if err := authority.writeIdentities(plane.url(), "https://"+proxy.Address); err != nil {
		return fmt.Errorf("kubeconfigs: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cluster, err := plane.connect(limited, folder)
	if err != nil {
		return err
	}
	if err := cluster.install(limited, o.manifests); err != nil {
		return err
	}
	if !o.realNode {
		kubelet, err := startKubelet(folder)
		if err != nil {
			return fmt.Errorf("stub kubelet: %w", err)
		}
		if err := cluster.addNode(limited, kubelet); err != nil {
			return err
		}
	}
	if err := cluster.writeServiceAccount(limited, authority, plane.url(), "https://"+proxy.Address); err != nil {
		return err
	}
	version, err := cluster.typed.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	control, err := startControl(ctx, proxy, plane, cluster)
	if err != nil {
		return fmt.Errorf("the control port: %w", err)
	}
	line := ready{plane.url(), control, version.GitVersion, folder}
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		return err
	}
	return plane.wait(ctx)
}

// startControl listens for the commands of tests.
func startControl(ctx context.Context, proxy *cut.Proxy, plane *plane, cluster *cluster) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	commands := http.NewServeMux()
	commands.HandleFunc("POST /cut", func(http.ResponseWriter, *http.Request) { proxy.Cut() })
	for name, state := range map[string]cut.State{"down": cut.Down, "silent": cut.Silent, "up": cut.Up} {
		commands.HandleFunc("POST /"+name, func(http.ResponseWriter, *http.Request) { proxy.Set(state) })
	}
	for name, run := range map[string]func(context.Context) error{
		"restart": plane.restart, "backup": plane.backup, "restore": plane.restore,
	} {
		commands.HandleFunc("POST /"+name, func(answer http.ResponseWriter, _ *http.Request) {
			if err := errors.Join(run(ctx), plane.ready(ctx, cluster)); err != nil {
				http.Error(answer, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	go func() { _ = http.Serve(listener, commands) }()
	return "http://" + listener.Addr().String(), nil
}
