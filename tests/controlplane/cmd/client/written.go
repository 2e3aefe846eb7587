package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-helpers/node/util/sysctl/testing"
	"k8s.io/kubernetes/pkg/proxy/iptables"
	proxyutil "k8s.io/kubernetes/pkg/proxy/util"
	utiliptables "k8s.io/kubernetes/pkg/util/iptables"
	faketables "k8s.io/kubernetes/pkg/util/iptables/testing"
)

// written holds the rules of kube-proxy's iptables proxier. It takes the text for iptables-restore, so that it needs
// neither privileges nor iptables.
type written struct {
	*faketables.FakeIPTables
	rules atomic.Pointer[string]
}

// RestoreAll receives the rules. The proxier calls it from one place at a time.
func (w *written) RestoreAll(data []byte, flush utiliptables.FlushFlag, counters utiliptables.RestoreCountersFlag) error {
	if err := w.FakeIPTables.RestoreAll(data, flush, counters); err != nil {
		return err
	}
	var all bytes.Buffer
	// No table: all of them.
	if err := w.SaveInto("", &all); err != nil {
		return err
	}
	text := all.String()
	w.rules.Store(&text)
	return nil
}

// startProxier runs the proxier until the process ends.
func startProxier(ctx context.Context, node string) (*written, *iptables.Proxier, error) {
	w := &written{FakeIPTables: faketables.NewFake()}
	// Health checks listen on loopback, as node ports do.
	proxier, err := iptables.NewProxier(ctx, core.IPv4Protocol, w, testing.NewFake(), time.Minute, 0, false, false, 14,
		proxyutil.NewNoOpLocalDetector(), node, net.IPv4(192, 0, 2, 2), &events.FakeRecorder{}, nil, []string{"127.0.0.0/8"}, false)
	if err != nil {
		return nil, nil, err
	}
	go proxier.SyncLoop()
	return w, proxier, nil
}

// lines returns the lines that name the port `http` of a service.
func (w *written) lines(namespace, name string) string {
	var lines []string
	if rules := w.rules.Load(); rules != nil {
		for line := range strings.Lines(*rules) {
			if strings.Contains(line, fmt.Sprintf("%s/%s:http", namespace, name)) {
				lines = append(lines, line)
			}
		}
	}
	return strings.Join(lines, "")
}

// rule describes the written rules for the port `http` of a service, in the words of tracked.rule.
func (w *written) rule(namespace, name string) string {
	rules := w.rules.Load()
	if rules == nil {
		return "nothing is written"
	}
	port := regexp.QuoteMeta(fmt.Sprintf("%s/%s:http", namespace, name))
	has := func(pattern string) bool {
		return regexp.MustCompile(`(?m)^` + strings.ReplaceAll(pattern, "@", port)).MatchString(*rules)
	}
	text := "none"
	if has(`-A KUBE-SERVICES .*"@ cluster IP" .*-j KUBE-SVC-`) {
		text = "cluster IP"
	}
	if has(`-A KUBE-NODEPORTS .*--comment @ .*--dport \d+ -j KUBE-EXT-`) {
		text += ", node port"
	}
	if has(`-A KUBE-NODEPORTS .*"@ health check node port" .*-j ACCEPT`) {
		text += ", health check"
	}
	if has(`-A KUBE-SERVICES .*"@ loadbalancer IP" .*-j KUBE-EXT-`) {
		text += ", balancer"
	}
	var backends []string
	endpoint := regexp.MustCompile(`(?m)^-A KUBE-SVC-\S+ .*"` + port + ` -> ([0-9.]+):\d+"`)
	for _, match := range endpoint.FindAllStringSubmatch(*rules, -1) {
		backends = append(backends, match[1])
	}
	slices.Sort(backends)
	return strings.TrimSuffix(text+" to "+strings.Join(slices.Compact(backends), " "), " to ")
}
