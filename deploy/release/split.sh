#!/bin/sh
# A program without its debug information, and that information beside it: sh split.sh PROGRAM FOLDER. Writes FOLDER/NAME and
# FOLDER/NAME.debug.
set -eu
program=$1 folder=$2 name=$(basename "$1")
mkdir -p "$folder"
objcopy --only-keep-debug "$program" "$folder/$name.debug"
objcopy --strip-all --add-gnu-debuglink="$folder/$name.debug" "$program" "$folder/$name"
