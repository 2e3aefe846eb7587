//go:build tools

// Package registry names the programs of the tests with a real registry: they are built as their authors publish them.
package registry

import (
	_ "github.com/distribution/distribution/v3/cmd/registry"
	_ "github.com/sigstore/cosign/v3/cmd/cosign"
	_ "oras.land/oras/cmd/oras"
)
