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
	"sync"
	"syscall"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// plane is etcd and kube-apiserver. Each is a process with its log beside its data.
type plane struct {
	address, etcdAddress     string
	folder                   string
	arguments, etcdArguments []string

	mutex        sync.Mutex
	etcd, server *part
	// changed is signalled when a process is replaced.
	changed chan struct{}
}

type part struct {
	name    string
	command *exec.Cmd
	ended   chan struct{}
	log     string
}

// cluster is the administrator's access to the control plane.
type cluster struct {
	typed      kubernetes.Interface
	dynamic    dynamic.Interface
	extensions clientset.Interface
}

func startPlane(ctx context.Context, folder string, o *options) (*plane, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	// The Endpoints of the kubernetes Service must not contain loopback addresses. No client uses this one.
	advertised := "192.0.2.1"
	if own := net.ParseIP(o.address); own != nil && !own.IsLoopback() {
		ports[2], advertised = net.JoinHostPort(o.address, "6443"), o.address
	}
	client, peer := "http://"+ports[0], "http://"+ports[1]
	host, port, err := net.SplitHostPort(ports[2])
	if err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(folder, name) }
	p := &plane{address: ports[2], folder: folder, changed: make(chan struct{}, 1), arguments: []string{
		"--etcd-servers=" + client, "--bind-address=" + host, "--secure-port=" + port,
		"--advertise-address=" + advertised, "--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + file("server.crt"), "--tls-private-key-file=" + file("server.key"),
		"--client-ca-file=" + file("ca.crt"), "--token-auth-file=" + file("tokens.csv"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + file("accounts.pub"), "--service-account-signing-key-file=" + file("accounts.key"),
		"--kubelet-client-certificate=" + file("kubelet-client.crt"), "--kubelet-client-key=" + file("kubelet-client.key"),
		"--kubelet-certificate-authority=" + file("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		// The server moves clients to other connections occasionally, with the highest rate that it accepts.
		"--goaway-chance=0.02",
		"--profiling=false", "--v=0",
	}}
	if o.realNode {
		// The control plane's network has no Service addresses: webhooks in pods are called at the pods' own addresses.
		p.arguments = append(p.arguments, "--allow-privileged", "--enable-aggregator-routing=true")
	} else {
		// Without controllers no namespace gets its default service account.
		p.arguments = append(p.arguments, "--disable-admission-plugins=ServiceAccount")
	}
	p.etcdArguments = []string{
		"--data-dir=" + p.data(), "--name=one", "--initial-cluster=one=" + peer,
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		// The data lives as long as the test.
		"--unsafe-no-fsync", "--log-level=warn",
	}
	p.etcdAddress = ports[0]
	if err := p.store(ctx); err != nil {
		p.stop()
		return nil, err
	}
	if err := p.serve(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// data is where etcd keeps its data.
func (p *plane) data() string { return filepath.Join(p.folder, "etcd") }

// store starts etcd and waits until it listens.
func (p *plane) store(ctx context.Context) error {
	etcd, err := start(p.folder, "etcd", p.etcdArguments...)
	if err != nil {
		return err
	}
	p.replace(&p.etcd, etcd)
	return p.listening(ctx, p.etcdAddress)
}

// serve starts the API server and waits until it listens.
func (p *plane) serve(ctx context.Context) error {
	server, err := start(p.folder, "kube-apiserver", p.arguments...)
	if err != nil {
		return err
	}
	p.replace(&p.server, server)
	return p.listening(ctx, p.address)
}

// replace sets the process that must run from now on.
func (p *plane) replace(running **part, next *part) *part {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	old := *running
	*running = next
	select {
	case p.changed <- struct{}{}:
	default:
	}
	return old
}

// end kills a process that must not run for now.
func (p *plane) end(running **part) {
	if old := p.replace(running, nil); old != nil {
		old.kill()
	}
}

// restart kills the API server and starts it again at the same address.
func (p *plane) restart(ctx context.Context) error {
	p.end(&p.server)
	return p.serve(ctx)
}

// backup keeps a copy of the cluster.
func (p *plane) backup(ctx context.Context) error {
	return p.exchange(ctx, p.data(), p.data()+".backup")
}

// restore puts the copy in the place of the cluster: a history of its own begins there.
func (p *plane) restore(ctx context.Context) error {
	return p.exchange(ctx, p.data()+".backup", p.data())
}

// exchange replaces one folder by a copy of another one while neither etcd nor the API server runs.
func (p *plane) exchange(ctx context.Context, from, to string) error {
	p.end(&p.server)
	p.end(&p.etcd)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	if err := p.store(ctx); err != nil {
		return err
	}
	return p.serve(ctx)
}

func (p *plane) url() string { return "https://" + p.address }

func start(folder, name string, arguments ...string) (*part, error) {
	path, first, err := program(name)
	if err != nil {
		return nil, err
	}
	log := filepath.Join(folder, name+".log")
	output, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	command := exec.Command(path, append(first, arguments...)...)
	command.Stdout, command.Stderr = output, output
	// If this process is killed, its children end too. The signal is bound to the thread that started them.
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
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return started, nil
}

// kill ends a part at once, as none of its data is kept.
func (p *part) kill() {
	_ = p.command.Process.Kill()
	<-p.ended
}

// parts are the processes that must run now, the last started first.
func (p *plane) parts() []*part {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	var parts []*part
	for _, part := range []*part{p.server, p.etcd} {
		if part != nil {
			parts = append(parts, part)
		}
	}
	return parts
}

// listening waits until a server accepts connections at an address.
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
			return fmt.Errorf("timed out waiting until %s", what)
		}
	}
	return nil
}

func (p *plane) anyEnded() error {
	for _, part := range p.parts() {
		select {
		case <-part.ended:
			text, _ := os.ReadFile(part.log)
			return fmt.Errorf("%s has ended; the end of its log:\n%s", part.name, text[max(0, len(text)-4000):])
		default:
		}
	}
	return nil
}

// ready waits until the API server reports ready.
func (p *plane) ready(ctx context.Context, c *cluster) error {
	ready := c.typed.Discovery().RESTClient().Get().AbsPath("/readyz")
	return p.until(ctx, "the API server is ready", func() bool { return ready.Do(ctx).Error() == nil })
}

// connect waits until the API server is ready and returns the administrator's clients.
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
	c := &cluster{typed, untyped, extensions}
	return c, p.ready(ctx, c)
}

// wait returns when the context ends, or with an error when a part ends by itself.
func (p *plane) wait(ctx context.Context) error {
	for {
		// Both are other processes after a restart, and absent during one.
		never := make(chan struct{})
		ended := [2]chan struct{}{never, never}
		for n, part := range p.parts() {
			ended[n] = part.ended
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ended[0]:
		case <-ended[1]:
		case <-p.changed:
		}
		if err := p.anyEnded(); err != nil {
			return err
		}
	}
}

// stop ends the parts.
func (p *plane) stop() {
	for _, part := range p.parts() {
		part.kill()
	}
}

// freePorts returns loopback ports that are free at this moment.
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
