package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// plane is etcd and kube-apiserver, each a process with its log beside its data.
type plane struct {
	address string
	parts   []*part
}

type part struct {
	name    string
	command *exec.Cmd
	ended   chan struct{}
	log     string
}

// cluster is what an administrator does with the control plane.
type cluster struct {
	config     *rest.Config
	typed      kubernetes.Interface
	dynamic    dynamic.Interface
	extensions clientset.Interface
}

func startPlane(ctx context.Context, folder string) (*plane, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	client, peer := "http://"+ports[0], "http://"+ports[1]
	p := &plane{address: ports[2]}
	if err := p.start(folder, "etcd",
		"--data-dir="+filepath.Join(folder, "etcd"), "--name=one", "--initial-cluster=one="+peer,
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		// The data lives as long as the test.
		"--unsafe-no-fsync", "--log-level=warn",
	); err != nil {
		return nil, err
	}
	if err := p.listening(ctx, ports[0]); err != nil {
		p.stop()
		return nil, err
	}
	host, port, err := net.SplitHostPort(p.address)
	if err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(folder, name) }
	if err := p.start(folder, "kube-apiserver",
		"--etcd-servers="+client, "--bind-address="+host, "--secure-port="+port,
		// Loopback may not stand in the Endpoints of the kubernetes Service; nobody connects to this one.
		"--advertise-address=192.0.2.1", "--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file="+file("server.crt"), "--tls-private-key-file="+file("server.key"),
		"--client-ca-file="+file("ca.crt"), "--token-auth-file="+file("tokens.csv"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		// There are no controllers here that would give each namespace its default service account.
		"--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+file("accounts.pub"), "--service-account-signing-key-file="+file("accounts.key"),
		"--kubelet-client-certificate="+file("kubelet-client.crt"), "--kubelet-client-key="+file("kubelet-client.key"),
		"--kubelet-certificate-authority="+file("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--profiling=false", "--v=0",
	); err != nil {
		p.stop()
		return nil, err
	}
	if err := p.listening(ctx, p.address); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *plane) url() string { return "https://" + p.address }

func (p *plane) start(folder, name string, arguments ...string) error {
	path, first, err := program(name)
	if err != nil {
		return err
	}
	log := filepath.Join(folder, name+".log")
	output, err := os.Create(log)
	if err != nil {
		return err
	}
	defer output.Close()
	command := exec.Command(path, append(first, arguments...)...)
	command.Stdout, command.Stderr = output, output
	// Should we be killed, our parts go too. The signal is bound to the thread that started them.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := &part{name, command, make(chan struct{}), log}
	begun := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := command.Start()
		begun <- err
		if err == nil {
			_ = command.Wait()
			close(started.ended)
		}
	}()
	if err := <-begun; err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p.parts = append(p.parts, started)
	return nil
}

// listening waits until something answers at an address.
func (p *plane) listening(ctx context.Context, address string) error {
	return p.until(ctx, address+" answers", func() bool {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	})
}

func (p *plane) until(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if err := p.anyEnded(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s", what)
		}
	}
	return nil
}

func (p *plane) anyEnded() error {
	for _, part := range p.parts {
		select {
		case <-part.ended:
			text, _ := os.ReadFile(part.log)
			return fmt.Errorf("%s has ended; the end of its log:\n%s", part.name, text[max(0, len(text)-4000):])
		default:
		}
	}
	return nil
}

// connect waits until the API server is ready and gives the administrator's clients of it.
func (p *plane) connect(ctx context.Context, folder string) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(folder, "admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 1000, 1000
	typed, typedErr := kubernetes.NewForConfig(config)
	untyped, untypedErr := dynamic.NewForConfig(config)
	extensions, extensionsErr := clientset.NewForConfig(config)
	if err := errors.Join(typedErr, untypedErr, extensionsErr); err != nil {
		return nil, err
	}
	ready := typed.Discovery().RESTClient().Get().AbsPath("/readyz")
	if err := p.until(ctx, "the API server is ready", func() bool { return ready.Do(ctx).Error() == nil }); err != nil {
		return nil, err
	}
	return &cluster{config, typed, untyped, extensions}, nil
}

// wait returns when we are told to stop, or with an error when a part has ended by itself.
func (p *plane) wait(ctx context.Context) error {
	ended := make(chan struct{}, len(p.parts))
	for _, part := range p.parts {
		go func() {
			<-part.ended
			ended <- struct{}{}
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case <-ended:
		return p.anyEnded()
	}
}

// stop ends the parts, the last first. Nothing of them is kept, so none is given time for more than its end.
func (p *plane) stop() {
	for i := len(p.parts) - 1; i >= 0; i-- {
		_ = p.parts[i].command.Process.Kill()
		<-p.parts[i].ended
	}
}

// freePorts finds loopback addresses that nobody uses at this moment.
func freePorts(count int) ([]string, error) {
	var addresses []string
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}
