#!/bin/sh
# The content of an image, a folder for each layer: sh layers.sh PROGRAM MODULES FOLDER. Makes FOLDER/base with glibc, CA
# certificates and the user, FOLDER/modules unless MODULES is empty, and a folder of the program's name. Libraries and
# certificates are those of the Debian machine.
set -eu
program=$1 modules=$2 folder=$3 name=$(basename "$1")
here=$(cd "$(dirname "$0")/../.." && pwd)
command -v dpkg-query >/dev/null || { echo "layers.sh: there is no dpkg-query: the libraries of the image are Debian's" >&2; exit 1; }
rm -rf "$folder"
umask 022
base=$folder/base

# What the binary is linked with, under the names by which the loader looks it up.
libraries=$(ldd "$program" | sed -n 's|^.*[[:space:]]\(/[^ ]*\) (0x[0-9a-f]*)$|\1|p')
for library in $libraries; do
    install -D -m 755 "$(readlink -f "$library")" "$base$library"
done
mkdir -p "$base/etc/ssl/certs" "$base/tmp" "$base/home/nonroot" "$base/var/lib/dpkg/status.d"
chmod 1777 "$base/tmp"
# Only Debian's: the machine's own bundle may have more.
cat /usr/share/ca-certificates/mozilla/*.crt >"$base/etc/ssl/certs/ca-certificates.crt"
echo 'root:x:0:0:root:/root:/sbin/nologin
nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin' >"$base/etc/passwd"
echo 'root:x:0:
nonroot:x:65532:' >"$base/etc/group"
echo 'hosts: files dns' >"$base/etc/nsswitch.conf"
cp /usr/lib/os-release "$base/etc/os-release"
# Scanners read here which packages an image has; licences want their texts beside them.
for file in $libraries /usr/share/ca-certificates/mozilla; do
    # Where /usr is merged, dpkg knows a library by its name in /lib or in /usr/lib.
    dpkg-query -S "$file" "/usr$file" "$(readlink -f "$file")" 2>/dev/null | head -n 1 | sed 's/[:,].*//'
done | sort -u | while read -r package; do
    dpkg-query -s "$package" >"$base/var/lib/dpkg/status.d/$package"
    install -D -m 644 "/usr/share/doc/$package/copyright" "$base/usr/share/doc/$package/copyright"
done
install -D -m 644 "$here/LICENSE" "$base/usr/share/doc/weir/LICENSE"

if [ -n "$modules" ]; then
    mkdir -p "$folder/modules/modules"
    for module in "$modules"/*.wasm; do install -m 644 "$module" "$folder/modules/modules/"; done
fi
install -D -m 755 "$program" "$folder/$name/usr/local/bin/$name"
