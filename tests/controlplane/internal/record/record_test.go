package record

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func begin(t *testing.T) (*Record, string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "7", "form")
	r, err := New(folder)
	if err != nil {
		t.Fatal(err)
	}
	r.Line("faults.txt", "the link is %s", "cut")
	r.Object("streams/one.txt", "store", map[string]int{"a": 1})
	return r, folder
}

func TestAFailedRunLeavesItsLines(t *testing.T) {
	r, folder := begin(t)
	if err := r.End(true); err != nil {
		t.Fatal(err)
	}
	r.Line("faults.txt", "nothing after the end")
	for name, line := range map[string]string{
		"faults.txt":      `^ +\d+\.\d{3} the link is cut\n$`,
		"streams/one.txt": `^ +\d+\.\d{3} store map\[string\]int \{"a":1\}\n$`,
	} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || !regexp.MustCompile(line).Match(text) {
			t.Fatalf("%s is %q, %v", name, text, err)
		}
	}
	if _, err := New(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "faults.txt")); !os.IsNotExist(err) {
		t.Fatal("a second run begins with an empty folder")
	}
}

func TestAPassedRunLeavesNothing(t *testing.T) {
	r, folder := begin(t)
	if err := r.End(false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(folder)); !os.IsNotExist(err) {
		t.Fatal("the folder of the seed is still there")
	}
}

func TestAFolderThatCannotBeWrittenIsReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := &Record{folder: file, files: map[string]*openFile{}}
	r.Line("faults.txt", "one")
	r.Line("faults.txt", "two")
	if r.End(true) == nil {
		t.Fatal("lines are missing, and nothing says so")
	}
}

func TestWithoutAFolderNothingIsRecorded(t *testing.T) {
	r, err := New("")
	if err != nil {
		t.Fatal(err)
	}
	r.Line("faults.txt", "one")
	r.Object("faults.txt", "one", 1)
	if err := r.End(true); err != nil {
		t.Fatal(err)
	}
}
