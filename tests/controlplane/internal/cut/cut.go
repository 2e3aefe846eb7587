// Package cut is a TCP proxy that can fail as a link does: it resets its connections, refuses new ones, or passes on
// nothing.
package cut

import (
	"io"
	"net"
	"sync"
)

// State is what a proxy does with connections.
type State int

const (
	// Up passes everything on.
	Up State = iota
	// Down resets all connections, and new ones at once.
	Down
	// Silent keeps connections, accepts new ones, and passes on nothing. What it holds back arrives when it is Up.
	Silent
)

// Proxy carries connections to one server until they are cut.
type Proxy struct {
	// Address is its listen address, on loopback.
	Address string
	server  string

	mutex   sync.Mutex
	changed *sync.Cond
	state   State
	open    map[net.Conn]struct{}
}

// Start listens in front of a server's address.
func Start(server string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Address: listener.Addr().String(), server: server, open: map[net.Conn]struct{}{}}
	p.changed = sync.NewCond(&p.mutex)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.carry(client)
		}
	}()
	return p, nil
}

func (p *Proxy) carry(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mutex.Lock()
	if p.state == Down {
		reset(client)
		reset(server)
	}
	p.open[client], p.open[server] = struct{}{}, struct{}{}
	p.mutex.Unlock()
	var both sync.WaitGroup
	copied := func(to, from net.Conn) {
		_, _ = io.Copy(gate{to, p}, from)
		_ = to.Close()
		_ = from.Close()
	}
	both.Go(func() { copied(server, client) })
	both.Go(func() { copied(client, server) })
	both.Wait()
	p.mutex.Lock()
	delete(p.open, client)
	delete(p.open, server)
	p.mutex.Unlock()
}

// gate writes to a connection when the proxy is not silent.
type gate struct {
	to    io.Writer
	proxy *Proxy
}

func (g gate) Write(bytes []byte) (int, error) {
	g.proxy.mutex.Lock()
	for g.proxy.state == Silent {
		g.proxy.changed.Wait()
	}
	g.proxy.mutex.Unlock()
	return g.to.Write(bytes)
}

// Cut resets every connection.
func (p *Proxy) Cut() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.cut()
}

func (p *Proxy) cut() {
	for connection := range p.open {
		reset(connection)
	}
}

// Set changes the state.
func (p *Proxy) Set(state State) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.state = state
	p.changed.Broadcast()
	if state == Down {
		p.cut()
	}
}

func reset(connection net.Conn) {
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = connection.Close()
}
