#!/bin/sh
# Builds the control plane and the conformance suite of another release of Kubernetes into a folder: sh release.sh RELEASE FOLDER
#
# RELEASE is a minor one, as 1.36, which is its newest patch, or a patch. The sources are those of this folder and of
# ../node/e2e, in copies whose go.mod names that release. The first build of a release takes half an hour of two cores.
set -eu
release=v${1#v}
mkdir -p "$2"
folder=$(cd "$2" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
cp -r "$here" "$sources/controlplane"
cp -r "$here/../node/e2e" "$sources/e2e"

full=$(cd "$here" && go list -m -f '{{.Version}}' "k8s.io/kubernetes@$release")
module=$(cd "$here" && go mod download -json "k8s.io/kubernetes@$full" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
# The modules that Kubernetes develops in its own repository. Each release adds some.
staging=$(sed -n 's|.*\(k8s.io/[a-z0-9-]*\) => ./staging.*|\1|p' "$module" | sort -u)
replace=$(for name in $staging; do echo "-replace=$name=$name@v0${full#v1}"; done)
# What the real node does not need is written for one release: the Go clients, and the stub of a kubelet.
rm -r "$sources/controlplane/cmd/client" "$sources/controlplane/cmd/controlplane/kubelet.go"
for part in controlplane e2e; do
    cd "$sources/$part"
    # shellcheck disable=SC2086 # one argument each
    go mod edit $replace "-require=k8s.io/kubernetes@$full"
    go mod tidy
done
TAGS=realnode KUBEBUILDER_ASSETS='' sh "$sources/controlplane/build.sh" "$folder" ./cmd/controlplane
KUBEBUILDER_ASSETS='' sh "$sources/controlplane/build.sh" "$folder" ./node
sh "$sources/e2e/build.sh" "$folder/e2e"
echo "Kubernetes $full"
