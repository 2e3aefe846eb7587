#!/bin/sh
# Builds the control plane and the Go clients of the tests into a folder, or other programs of this module: sh build.sh FOLDER
# [PACKAGE]
#
# Where KUBEBUILDER_ASSETS names a folder with kube-apiserver and etcd, those are used and not built. What Go has compiled
# is kept in its own cache, so that only a change costs time. The first build takes minutes and 2 GB of memory.
set -eu
folder=$1
package=${2:-./cmd/...}
cd "$(dirname "$0")"
tags=${TAGS:-}
if [ -x "${KUBEBUILDER_ASSETS:-}/kube-apiserver" ] && [ -x "$KUBEBUILDER_ASSETS/etcd" ]; then
    tags=$tags,assets
else
    tags=$tags,builtin
fi
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || { echo "not formatted: $unformatted" >&2; exit 1; }
# Two at a time: each package of the API server takes hundreds of megabytes to compile.
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
go build -p 2 -tags "$tags" -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$folder/" "$package"
go vet -p 2 -tags "$tags" "$package" ./internal/...
# What the clients check is tested by histories that break it.
go test -p 2 ./internal/...
