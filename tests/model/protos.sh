#!/bin/sh
# Writes the .proto files that Kubernetes publishes, without their comments, into the folder that is given: those of the
# release that the engine's table is from. Runs in host/document/schema, whose go.mod says which.
set -eu
for folder in api/core/v1 api/discovery/v1 apimachinery/pkg/apis/meta/v1 apimachinery/pkg/api/resource \
    apimachinery/pkg/runtime apimachinery/pkg/runtime/schema apimachinery/pkg/util/intstr; do
    from=$(go list -m -f '{{.Dir}}' "k8s.io/${folder%%/*}")/${folder#*/}
    mkdir -p "$1/k8s.io/$folder"
    sed '/^ *\/\//d; /^$/d' "$from/generated.proto" >"$1/k8s.io/$folder/generated.proto"
done
