#!/bin/sh
# Builds Traefik into a folder, by its own go.mod: sh build.sh FOLDER. The first build takes minutes; Go's own cache keeps what it
# compiled.
#
# The published module lacks the web page that Traefik embeds. A page of one line stands in for it.
set -eu
folder=$1
cd "$(dirname "$0")"
module=github.com/traefik/traefik/v3
version=$(sed -n "s|^require $module ||p" go.mod)
if [ ! -d "$folder/$version" ]; then
    # Verified by go.sum.
    source=$(go mod download -json "$module@$version" | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p')
    mkdir -p "$folder"
    rm -rf "$folder/new"
    cp -R "$source" "$folder/new"
    chmod -R u+w "$folder/new"
    mkdir -p "$folder/new/webui/static"
    echo "no web page" > "$folder/new/webui/static/index.html"
    mv "$folder/new" "$folder/$version"
fi
cd "$folder/$version"
go build -p 2 -ldflags "-s -w" -o "$folder/traefik" ./cmd/traefik
