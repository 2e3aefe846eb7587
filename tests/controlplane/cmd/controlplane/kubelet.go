//go:build !realnode

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	streams "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"
	container "k8s.io/kubelet/pkg/cri/streaming/remotecommand"
	"k8s.io/utils/exec"
)

const (
	idle     = time.Minute
	creation = 30 * time.Second
)

// kubelet implements what the API server needs for logs, exec, attach and port-forward. Every pod has a log of three
// lines, which continues with `follow` until the client disconnects; the commands `echo WORDS`, `cat` and `fail CODE`;
// and ports that send their number and then echo.
type kubelet struct {
	host string
	port int32
}

func startKubelet(folder string) (*kubelet, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "kubelet.crt"), filepath.Join(folder, "kubelet.key"))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := listener.Addr().(*net.TCPAddr)
	k := &kubelet{address.IP.String(), int32(address.Port)}
	handler := http.NewServeMux()
	handler.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", logs)
	handler.HandleFunc("/exec/{namespace}/{pod}/{container}", k.exec)
	handler.HandleFunc("/attach/{namespace}/{pod}/{container}", k.attach)
	handler.HandleFunc("/portForward/{namespace}/{pod}", k.portForward)
	server := &http.Server{Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	return k, nil
}

func logs(answer http.ResponseWriter, request *http.Request) {
	for line := 1; line <= 3; line++ {
		fmt.Fprintf(answer, "%s/%s line %d\n", request.PathValue("pod"), request.PathValue("container"), line)
	}
	if request.URL.Query().Get("follow") == "true" {
		_ = http.NewResponseController(answer).Flush()
		<-request.Context().Done()
	}
}

func (k *kubelet) exec(answer http.ResponseWriter, request *http.Request) {
	options, err := container.NewOptions(request)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	container.ServeExec(answer, request, k, request.PathValue("pod"), "", request.PathValue("container"),
		request.URL.Query()["command"], options, idle, creation, streams.SupportedStreamingProtocols)
}

func (k *kubelet) attach(answer http.ResponseWriter, request *http.Request) {
	options, err := container.NewOptions(request)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	container.ServeAttach(answer, request, k, request.PathValue("pod"), "", request.PathValue("container"),
		options, idle, creation, streams.SupportedStreamingProtocols)
}

func (k *kubelet) portForward(answer http.ResponseWriter, request *http.Request) {
	options, err := portforward.NewV4Options(request)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(answer, request, k, request.PathValue("pod"), "", options, idle, creation,
		portforward.SupportedProtocols)
}

// ExecInContainer runs a command of a pod.
func (k *kubelet) ExecInContainer(_ context.Context, _ string, _ types.UID, _ string, command []string, in io.Reader,
	out, problems io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	switch {
	case len(command) > 0 && command[0] == "echo":
		_, err := fmt.Fprintln(out, strings.Join(command[1:], " "))
		return err
	case len(command) == 1 && command[0] == "cat" && in != nil:
		_, err := io.Copy(out, in)
		return err
	case len(command) == 2 && command[0] == "fail":
		code := 1
		_, _ = fmt.Sscan(command[1], &code)
		if problems != nil {
			fmt.Fprintln(problems, "it fails, as asked")
		}
		return exec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: code}
	}
	return fmt.Errorf("no such command: %q", command)
}

// AttachContainer echoes its input.
func (k *kubelet) AttachContainer(_ context.Context, _ string, _ types.UID, _ string, in io.Reader,
	out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize,
) error {
	if in == nil {
		_, err := fmt.Fprintln(out, "attached")
		return err
	}
	_, err := io.Copy(out, in)
	return err
}

// PortForward serves the port of a pod.
func (k *kubelet) PortForward(_ context.Context, _ string, _ types.UID, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	if _, err := fmt.Fprintf(stream, "port %d\n", port); err != nil {
		return err
	}
	_, err := io.Copy(stream, stream)
	return err
}
