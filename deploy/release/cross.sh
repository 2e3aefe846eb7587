#!/bin/sh
# Debian's cross compiler and qemu for aarch64, unpacked into a folder and not installed, with a wrapper of the compiler that
# finds its libraries there: sh cross.sh FOLDER. Where they are installed, the wrapper uses those.
set -eu
folder=$1
tools=$folder/bin
mkdir -p "$tools"
if command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64-static >/dev/null; then
    ln -sf "$(command -v aarch64-linux-gnu-gcc)" "$tools/cc"
    for tool in ar objcopy; do ln -sf "$(command -v aarch64-linux-gnu-$tool)" "$tools/$tool"; done
    ln -sf "$(command -v qemu-aarch64-static)" "$tools/qemu"
    ln -sfn /usr/aarch64-linux-gnu "$folder/sysroot"
    exit 0
fi
here=$(cd "$(dirname "$0")/../.." && pwd)
sh "$here/tests/node/packages.sh" "$folder/debian" \
    "gcc-12-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static" \
    '^(cpp-12|binutils)-aarch64-linux-gnu$|^lib(gcc|c6|gcc-s1).*-arm64-cross$|^linux-libc-dev-arm64-cross$|^lib(isl|mpc|mpfr|gmp)[0-9]'
usr=$folder/debian/usr
# The linker scripts of the C library name its files as they lie when it is installed.
for script in "$usr"/aarch64-linux-gnu/lib/lib*.so; do
    if head -c 20 "$script" | grep -q GNU; then sed -i "s| /usr/aarch64-linux-gnu/lib/| |g" "$script"; fi
done
wrap() { # NAME COMMAND
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$usr/lib/$(uname -m)-linux-gnu" "$2" >"$tools/$1"
    chmod +x "$tools/$1"
}
libraries=$usr/aarch64-linux-gnu
wrap cc "$usr/bin/aarch64-linux-gnu-gcc-12 -B$libraries/lib -L$libraries/lib -isystem $libraries/include"
wrap ar "$usr/bin/aarch64-linux-gnu-ar"
wrap objcopy "$usr/bin/aarch64-linux-gnu-objcopy"
ln -sf "$usr/bin/qemu-aarch64-static" "$tools/qemu"
ln -sfn "$usr/aarch64-linux-gnu" "$folder/sysroot"
