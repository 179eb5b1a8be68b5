#!/bin/sh
# Lint must find what it is there for: plants one violation of each kind in a small tree.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/pipeline/core" "$root/pipeline/engine" "$root/kernels/include/espalier" "$root/stages/x" \
    "$root/eval" "$root/datasets" "$root/search" "$root/tests"
printf '#ifndef A_H\n#define A_H\nvoid a(size_t n);\n#endif\n' >"$root/pipeline/core/needs_stddef.h"
printf '#ifndef B_H\n#define B_H\n#endif\n' >"$root/pipeline/engine/plan.h"
printf '#include "engine/plan.h"\n' >"$root/pipeline/core/upward.c"
printf '#include "engine/plan.h"\n' >"$root/stages/x/stage.c"
printf 'int same;\n' >"$root/eval/twin.c"
printf 'int same;\n' >"$root/datasets/twin.c"
printf 'void f(char *a)\n{\n    strcpy(a, "x");\n    printf("y");\n}\n' >"$root/search/banned.c"
printf '#ifndef C_H\n#define C_H\nint *f(int *restrict p);\n#endif\n' >"$root/kernels/include/espalier/notcpp.h"
printf '/* TODO later */\nint  x;\n' >"$root/eval/messy.c"
awk 'BEGIN { for (i = 0; i < 601; i++) print "/* line */" }' >"$root/eval/long.c"

if output=$(LINT_ROOT=$root sh "$here/lint.sh" 2>/dev/null); then
    echo "lint accepted a tree full of violations"
    exit 1
fi
status=0
expect() {
    if ! printf '%s\n' "$output" | grep -q -e "$1"; then
        echo "not found by lint: $1"
        status=1
    fi
}
expect 'needs_stddef.h:1: does not compile alone'
expect 'upward.c:1: layer rule: pipeline/core may not include pipeline/engine/plan.h'
expect 'stages/x/stage.c:1: layer rule: stages may not include pipeline/engine/plan.h'
expect 'twin.c: the name is used more than once'
expect 'banned.c:3:.*banned function'
expect 'banned.c:4:.*only pipeline/cli and main.c print or exit'
expect 'notcpp.h:1: does not compile as C++'
expect 'messy.c:1:.*needs an issue number'
expect 'long.c:1: 601 lines'
if command -v clang-format-14 >/dev/null 2>&1; then
    expect 'messy.c:1: run clang-format on it'
fi
exit $status
