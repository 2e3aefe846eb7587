// Package cut is a TCP proxy that can reset its connections, as a bad link would.
package cut

import (
	"io"
	"net"
	"sync"
)

// Proxy carries connections to one server until they are cut.
type Proxy struct {
	// Address is its listen address, on loopback.
	Address string
	server  string

	mutex sync.Mutex
	open  map[net.Conn]struct{}
}

// Start listens in front of a server's address.
func Start(server string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Address: listener.Addr().String(), server: server, open: map[net.Conn]struct{}{}}
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
	p.open[client], p.open[server] = struct{}{}, struct{}{}
	p.mutex.Unlock()
	var both sync.WaitGroup
	copied := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
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

// Cut resets every connection.
func (p *Proxy) Cut() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for connection := range p.open {
		if tcp, ok := connection.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = connection.Close()
	}
}
