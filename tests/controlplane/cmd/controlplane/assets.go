//go:build assets

package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// program returns the command of a part of the control plane, from the folder that controller-runtime's envtest uses.
func program(name string) (string, []string, error) {
	path := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), name)
	if _, err := os.Stat(path); err != nil {
		return "", nil, fmt.Errorf("built to use the programs of KUBEBUILDER_ASSETS: %w", err)
	}
	return path, nil, nil
}

// builtin does nothing: no part is linked in.
func builtin(name string, _ []string) {
	fmt.Fprintf(os.Stderr, "controlplane: built without %q\n", name)
	os.Exit(64)
}
