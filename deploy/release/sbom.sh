#!/bin/sh
# Writes what the daemon is built from, in CycloneDX: sh sbom.sh CYCLONEDX FILE. cargo-cyclonedx writes a file beside each manifest
# of the workspace, so it works on a copy of the sources. Paths of the machine are left out. Equal sources give equal bytes.
set -eu
cyclonedx=$1 file=$2
here=$(cd "$(dirname "$0")/../.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
tar --create --directory "$here" --exclude=./target --exclude=./.git . | tar --extract --directory "$copy"
cd "$copy"
SOURCE_DATE_EPOCH=0 "$cyclonedx" cyclonedx --manifest-path host/Cargo.toml --format json --spec-version 1.5 --target all \
    --override-filename weir.cdx --quiet
sed "s|path+file://$copy/||g; s|file://$copy/||g" host/weir.cdx.json >"$file"
