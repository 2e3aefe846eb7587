#!/bin/sh
# Builds Kubernetes' conformance suite into a folder, where it stays: e2e.test, ginkgo, and the test image's program with its
# certificate: sh build.sh FOLDER
#
# The first build takes some ten CPU minutes. A later call does nothing while the release and the toolchain are the same, and one that
# comes meanwhile waits.
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")"
# Another build of the same folder goes first.
exec 9>"$folder/.lock"
flock 9
state=$(go env GOVERSION GOARCH; cat go.mod go.sum build.sh)
[ -e "$folder/.built" ] && [ "$state" = "$(cat "$folder/.built")" ] && exit 0
rm -f "$folder/.built"
kubernetes=k8s.io/kubernetes
version=$(go list -m -f '{{.Version}}' $kubernetes)
# Two at a time: some packages take a gigabyte to compile.
flags="-s -w -X k8s.io/component-base/version.gitVersion=$version"
go test -c -p 2 -vet=off -ldflags "$flags" -o "$folder/e2e.test" $kubernetes/test/e2e
go build -p 2 -ldflags "-s -w" -o "$folder/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
CGO_ENABLED=0 go build -p 2 -ldflags "-s -w" -o "$folder/agnhost" $kubernetes/test/images/agnhost
porter=$(go list -m -f '{{.Dir}}' $kubernetes)/test/images/agnhost/porter
install -m 644 "$porter/localhost.crt" "$porter/localhost.key" "$folder/"
echo "$state" >"$folder/.built"
