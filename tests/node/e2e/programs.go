//go:build programs

// Package e2e names the programs that build.sh builds from the published modules of Kubernetes' release: its conformance
// suite, the runner of the suite, and the test image's program.
package e2e

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
	_ "k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/images/agnhost"
)
