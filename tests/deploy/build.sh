#!/bin/sh
# Builds helm into a folder: sh build.sh FOLDER. It uses the same Kubernetes libraries as tests/controlplane, so that Go's cache
# has most of them. Debian's promtool and the custom resource definitions of the Prometheus operator go beside it.
set -eu
folder=$1
cd "$(dirname "$0")"
# What `helm template` takes for the cluster's version; without these it is v1.20.
minor=$(go list -m -f '{{.Version}}' k8s.io/client-go | cut -d. -f2)
charts=helm.sh/helm/v3/pkg
flags="-s -w"
for package in chartutil lint/rules; do
    flags="$flags -X $charts/$package.k8sVersionMajor=1 -X $charts/$package.k8sVersionMinor=$minor"
done
go build -p 2 -ldflags "$flags" -o "$folder/" tool
if sh ../node/packages.sh "$folder/debian" prometheus "^no library$"; then
    ln -sf debian/usr/bin/promtool "$folder/promtool"
else
    sh ../skip.sh promtool "Debian's packages cannot be had"
fi
operator=$(go mod download -json github.com/prometheus-operator/prometheus-operator@v0.85.0 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
mkdir -p "$folder/crds"
for name in servicemonitors podmonitors prometheusrules; do
    install -m 644 "$operator/example/prometheus-operator-crd/monitoring.coreos.com_$name.yaml" "$folder/crds/$name.yaml"
done
