#!/bin/sh
# Builds two registries (distribution, and zot without its extensions), cosign and oras into a folder: sh build.sh FOLDER. The
# first build takes minutes; Go's own cache keeps what it compiled.
set -eu
folder=$1
cd "$(dirname "$0")"
go build -p 2 -ldflags "-s -w" -o "$folder/" tool
cd zot
go build -p 2 -tags containers_image_openpgp -ldflags "-s -w" -o "$folder/" tool
