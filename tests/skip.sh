#!/bin/sh
# A part of the tests that cannot run here says so: skip.sh PART REASON. A run lists what it has skipped last, from $WEIR_SKIPPED.
# Where CI is set that is a failure, unless skips.txt allows it.
set -eu
part=$1 reason=$2
echo "!!! SKIPPED: $part: $reason !!!"
if [ -n "${WEIR_SKIPPED-}" ]; then
    echo "$part: $reason" >> "$WEIR_SKIPPED"
fi
[ -z "${CI-}" ] || grep -q "^$part:" "$(dirname "$0")/skips.txt"
