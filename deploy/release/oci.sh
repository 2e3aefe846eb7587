#!/bin/sh
# Writes an OCI image layout: sh oci.sh LAYERS DOCKERFILE DEBUG VERSION FOLDER. LAYERS is the folder of layers.sh; the last
# stage of the Dockerfile says which are copied in which order, the user and the entry point. FOLDER gets `image`, and `debug`
# with the debug file as an artefact that refers to the image. Equal input gives equal bytes.
set -eu
layers=$1 dockerfile=$2 debug=$3 version=$4 folder=$5 title=$(basename "$3" .debug)
case $(uname -m) in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; *) architecture=$(uname -m) ;; esac
rm -rf "$folder"

# Puts a file among the blobs of a layout, and prints its descriptor without the closing brace.
put() { # LAYOUT TYPE FILE
    digest=$(sha256sum "$3" | cut -d' ' -f1)
    mkdir -p "$1/blobs/sha256"
    size=$(wc -c <"$3")
    mv "$3" "$1/blobs/sha256/$digest"
    chmod 644 "$1/blobs/sha256/$digest"
    printf '{"mediaType":"%s","digest":"sha256:%s","size":%s' "$2" "$digest" "$size"
}

index() { # LAYOUT DESCRIPTOR NAME
    printf '{"imageLayoutVersion":"1.0.0"}' >"$1/oci-layout"
    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s,"annotations":{"org.opencontainers.image.ref.name":"%s"}}]}' \
        "$2" "$3" >"$1/index.json"
}

stage=$(sed -n '/^FROM scratch$/,$p' "$dockerfile")
user=$(echo "$stage" | sed -n 's/^USER //p')
start=$(echo "$stage" | sed -n 's/^ENTRYPOINT //p')
image=$folder/image
mkdir -p "$image"
descriptors='' contents=''
for layer in $(echo "$stage" | sed -n 's|^COPY --from=build .*/layers/\([a-z-]*\) /$|\1|p'); do
    tar --create --directory "$layers/$layer" --format=gnu --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
        --file "$folder/layer.tar" .
    contents="$contents,\"sha256:$(sha256sum "$folder/layer.tar" | cut -d' ' -f1)\""
    gzip -6n "$folder/layer.tar"
    descriptors="$descriptors,$(put "$image" application/vnd.oci.image.layer.v1.tar+gzip "$folder/layer.tar.gz")}"
done
printf '{"architecture":"%s","os":"linux","config":{"User":"%s","Entrypoint":%s},"rootfs":{"type":"layers","diff_ids":[%s]}}' \
    "$architecture" "$user" "$start" "${contents#,}" >"$folder/config"
config=$(put "$image" application/vnd.oci.image.config.v1+json "$folder/config")
manifest=application/vnd.oci.image.manifest.v1+json
printf '{"schemaVersion":2,"mediaType":"%s","config":%s},"layers":[%s],"annotations":{"org.opencontainers.image.title":"%s","org.opencontainers.image.version":"%s","org.opencontainers.image.licenses":"Apache-2.0"}}' \
    "$manifest" "$config" "${descriptors#,}" "$title" "$version" >"$folder/manifest"
subject=$(put "$image" "$manifest" "$folder/manifest")
index "$image" "$subject,\"platform\":{\"architecture\":\"$architecture\",\"os\":\"linux\"}" "$version"

mkdir -p "$folder/debug"
gzip -6nc "$debug" >"$folder/file"
file=$(put "$folder/debug" application/gzip "$folder/file")
printf '{}' >"$folder/config"
config=$(put "$folder/debug" application/vnd.oci.empty.v1+json "$folder/config")
printf '{"schemaVersion":2,"mediaType":"%s","artifactType":"application/vnd.weir.debug","config":%s},"layers":[%s,"annotations":{"org.opencontainers.image.title":"%s.debug.gz"}}],"subject":%s}}' \
    "$manifest" "$config" "$file" "$title" "$subject" >"$folder/manifest"
index "$folder/debug" "$(put "$folder/debug" "$manifest" "$folder/manifest"),\"artifactType\":\"application/vnd.weir.debug\"" "$version-debug"
echo "$subject}" | sed 's|.*"digest":"\([^"]*\)".*|weir:'"$version"'@\1|'
