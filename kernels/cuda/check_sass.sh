#!/bin/sh
# check_sass.sh OBJECT...
# Disassembles CUDA objects. In every loop that multiplies, the matrix instruction must be one of
# integers, and nothing may go through local memory; kernels for the INT4 instruction must have it
# in 8.0 to 8.9 and no code from 9.0 on, those with a producer warp no code in 8.0 to 8.9. Of
# products of few tokens it prints what a weight costs, and of 8.7 the time that this, and the bytes,
# take on an Orin (check_sass.awk has the model).
# Exit 0: all is well; 1: it is not; 77: there is no cuobjdump here.
set -eu

if ! command -v cuobjdump >/dev/null 2>&1; then
    echo "check_sass: skipped, no cuobjdump on PATH"
    exit 77
fi
if [ $# -eq 0 ]; then
    echo "usage: check_sass.sh OBJECT..." >&2
    exit 2
fi

# One architecture after the other: cuobjdump ends at the first that it does not know.
for object in "$@"; do
    for arch in $(cuobjdump --list-elf "$object" 2>/dev/null |
        sed -n 's/.*\.\(sm_[0-9a-z]*\)\.cubin.*/\1/p' | sort -u); do
        cuobjdump -sass -arch "$arch" "$object" 2>/dev/null ||
            echo "check_sass: $arch: NOT LOOKED AT, this cuobjdump does not know it" >&2
    done
done | awk -f "$(dirname "$0")/check_sass.awk"
