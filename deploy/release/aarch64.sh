#!/bin/sh
# Runs a command, such as cargo, that builds for aarch64 with the cross compiler of cross.sh and runs what it built with qemu:
# sh aarch64.sh FOLDER COMMAND...
set -eu
folder=$(cd "$1" && pwd)
shift
export CC_aarch64_unknown_linux_gnu="$folder/bin/cc"
export AR_aarch64_unknown_linux_gnu="$folder/bin/ar"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER="$folder/bin/cc"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$folder/bin/qemu -L $folder/sysroot"
# Kernels for aarch64 have pages of 4, 16 or 64 KiB. An allocator for the largest works with all.
export JEMALLOC_SYS_WITH_LG_PAGE=16
exec "$@"
