package main

import (
	"io"
	"net"
	"net/http"
	"sync"
)

// cutter is a TCP proxy in front of the API server whose connections can be cut, as a bad link would.
type cutter struct {
	address string
	control string
	server  string

	mutex sync.Mutex
	open  map[net.Conn]struct{}
}

func startCutter(server string) (*cutter, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &cutter{
		address: listener.Addr().String(), control: "http://" + control.Addr().String(), server: server,
		open: map[net.Conn]struct{}{},
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go c.carry(client)
		}
	}()
	commands := http.NewServeMux()
	commands.HandleFunc("POST /cut", func(http.ResponseWriter, *http.Request) { c.cut() })
	go func() { _ = http.Serve(control, commands) }()
	return c, nil
}

func (c *cutter) carry(client net.Conn) {
	server, err := net.Dial("tcp", c.server)
	if err != nil {
		_ = client.Close()
		return
	}
	c.mutex.Lock()
	c.open[client], c.open[server] = struct{}{}, struct{}{}
	c.mutex.Unlock()
	var both sync.WaitGroup
	copied := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
		_ = from.Close()
	}
	both.Go(func() { copied(server, client) })
	both.Go(func() { copied(client, server) })
	both.Wait()
	c.mutex.Lock()
	delete(c.open, client)
	delete(c.open, server)
	c.mutex.Unlock()
}

// cut resets every connection.
func (c *cutter) cut() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for connection := range c.open {
		if tcp, ok := connection.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = connection.Close()
	}
}
