// Package record keeps what happened in a run of tests, for the case that it fails.
package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Record is what a failed run leaves in its folder: files of lines, each an event with its time in seconds since the run
// began. It is written as the run goes, so that memory does not bound its length. A passed run removes it. nil records
// nothing.
type Record struct {
	folder string
	begun  time.Time

	mutex sync.Mutex
	files map[string]*openFile
	// ended is whether nothing is recorded any more, err why a line is missing.
	ended bool
	err   error
}

type openFile struct {
	file   *os.File
	writer *bufio.Writer
}

// New begins a record in a folder, whose content it removes; without one, it records nothing.
func New(folder string) (*Record, error) {
	if folder == "" {
		return nil, nil
	}
	if err := os.RemoveAll(folder); err != nil {
		return nil, err
	}
	return &Record{folder: folder, begun: time.Now(), files: map[string]*openFile{}}, nil
}

// Line adds a line to a file. An error is returned at the end.
func (r *Record) Line(name, format string, arguments ...any) {
	if r == nil {
		return
	}
	text := fmt.Sprintf(format, arguments...)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.ended || r.err != nil {
		return
	}
	to, err := r.open(name)
	if err == nil {
		_, err = fmt.Fprintf(to.writer, "%10.3f %s\n", time.Since(r.begun).Seconds(), text)
	}
	r.err = err
}

func (r *Record) open(name string) (*openFile, error) {
	if to := r.files[name]; to != nil {
		return to, nil
	}
	path := filepath.Join(r.folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	r.files[name] = &openFile{file, bufio.NewWriterSize(file, 64<<10)}
	return r.files[name], nil
}

// Object adds a line with a whole object.
func (r *Record) Object(name, what string, object any) {
	if r == nil {
		return
	}
	bytes, err := json.Marshal(object)
	if err != nil {
		bytes = []byte(err.Error())
	}
	r.Line(name, "%s %T %s", what, object, bytes)
}

// End keeps the record of a failed run, and removes that of a passed one.
func (r *Record) End(failed bool) error {
	if r == nil {
		return nil
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.ended = true
	err := r.err
	for _, to := range r.files {
		err = errors.Join(err, to.writer.Flush(), to.file.Close())
	}
	if !failed {
		err = errors.Join(err, os.RemoveAll(r.folder))
		// The folder of the seed, unless another form has failed in it.
		_ = os.Remove(filepath.Dir(r.folder))
	}
	return err
}
