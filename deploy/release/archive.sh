#!/bin/sh
# Packs a daemon for a machine without containers: sh archive.sh WEIR MODULES NAME FOLDER writes FOLDER/NAME.tar.gz. Equal input
# gives equal bytes.
set -eu
weir=$1 modules=$2 name=$3 folder=$4
here=$(cd "$(dirname "$0")/../.." && pwd)
root=$folder/$name
rm -rf "$root"
umask 022
install -D -m 755 "$weir" "$root/bin/weir"
mkdir -p "$root/modules" "$root/systemd"
for module in "$modules"/*.wasm; do install -m 644 "$module" "$root/modules/"; done
install -m 644 "$here/deploy/weir.service" "$here/deploy/weir.socket" "$root/systemd/"
install -m 644 "$here/LICENSE" "$here"/deploy/*.md "$root/"
tar --create --directory "$folder" --format=gnu --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner "$name" |
    gzip -6n >"$root.tar.gz"
rm -r "$root"
