// Command parser prints what kube-apiserver's own code makes of requests, for the differential tests of Weir's parsers
// (tests/real/differential.rs).
//
// It reads batches from stdin: a length of four bytes, little-endian, and as many bytes of frames. A frame is a length of four
// bytes and a question: one letter that names it, and the bytes of a request as they come from the network, or of a selector.
// Each batch is answered by one on stdout, with one frame for each question. net/http's server reads the requests.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// A wire is a connection that carries one question and is then closed.
type wire struct {
	bytes.Reader
	question byte
	// What the API server's code makes of the request; empty if net/http refuses it.
	answer []byte
	// The tokens that the authenticators have found.
	tokens []string
	closed chan struct{}
	once   sync.Once
}

func (w *wire) Write(p []byte) (int, error)      { return len(p), nil }
func (w *wire) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (w *wire) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

// Wires are a listener.
type wires chan *wire

func (w wires) Accept() (net.Conn, error) { return <-w, nil }
func (w wires) Close() error              { return nil }
func (w wires) Addr() net.Addr            { return &net.TCPAddr{} }

type wireKey struct{}

func wireOf(ctx context.Context) *wire { return ctx.Value(wireKey{}).(*wire) }

func main() {
	// Malformed requests are the point, and each would be logged, and slowed down.
	klog.SetLogger(klog.Logger{})
	utilruntime.ErrorHandlers = nil
	listener := make(wires)
	server := http.Server{
		Handler:  http.HandlerFunc(answer),
		ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, wireKey{}, conn)
		},
	}
	go server.Serve(listener)
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriterSize(os.Stdout, 1<<20)
	for {
		batch, err := frame(in)
		if err == io.EOF {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		var answers []byte
		for questions := bytes.NewReader(batch); questions.Len() > 0; {
			question, err := frame(questions)
			if err != nil || len(question) == 0 {
				log.Fatal("a malformed batch: ", err)
			}
			answer := ask(listener, question[0], question[1:])
			answers = binary.LittleEndian.AppendUint32(answers, uint32(len(answer)))
			answers = append(answers, answer...)
		}
		binary.Write(out, binary.LittleEndian, uint32(len(answers)))
		out.Write(answers)
		if err := out.Flush(); err != nil {
			log.Fatal(err)
		}
	}
}

func frame(in io.Reader) ([]byte, error) {
	var length uint32
	if err := binary.Read(in, binary.LittleEndian, &length); err != nil {
		return nil, err
	}
	bytes := make([]byte, length)
	_, err := io.ReadFull(in, bytes)
	return bytes, err
}

// Ask answers one question.
func ask(listener wires, question byte, text []byte) []byte {
	switch question {
	case 'l':
		return labelSelector(string(text))
	case 'f':
		return fieldSelector(string(text))
	}
	w := &wire{question: question, closed: make(chan struct{})}
	w.Reader.Reset(text)
	listener <- w
	<-w.closed
	return w.answer
}

func answer(_ http.ResponseWriter, req *http.Request) {
	w := wireOf(req.Context())
	// Only the first request of a connection is a question.
	if w.answer == nil {
		switch w.question {
		case 'c':
			w.answer = credential(w, req)
		case 'r':
			w.answer = resource(w, req)
		default:
			log.Fatalf("unknown question %q", w.question)
		}
	}
}
