#!/bin/sh
# check_sass.sh OBJECT...
# Disassembles CUDA objects and looks at every loop that multiplies: which matrix instructions it
# has, how many instructions a product takes, and that nothing goes through local memory. Exit 0:
# all is well; 1: it is not; 77: there is no cuobjdump here.
set -eu

if ! command -v cuobjdump >/dev/null 2>&1; then
    echo "check_sass: skipped, no cuobjdump on PATH"
    exit 77
fi
if [ $# -eq 0 ]; then
    echo "usage: check_sass.sh OBJECT..." >&2
    exit 2
fi

for object in "$@"; do
    cuobjdump -sass "$object" 2>/dev/null
done | awk '
# Loops with products that have no such loop inside: a loop ends at a backward branch. Branches back
# from code far behind, where the assembler puts what is rare, would overlap with a loop before.
function finish(    i, j, k, first, products, local, kinds, ends, inner) {
    if (name == "" || total == 0) {
        return
    }
    ends = 0
    for (i = 0; i < total; i++) {
        if (target[i] == "" || !(target[i] in line) || line[target[i]] >= i) {
            continue
        }
        first = line[target[i]]
        products = 0
        local = 0
        kinds = ""
        for (j = first; j <= i; j++) {
            products += text[j] ~ /IG?MMA/ ? 1 : 0
            local += text[j] ~ /(LDL|STL)/ ? 1 : 0
            if (kinds == "" && match(text[j], /IG?MMA[.0-9A-Zx]*/)) {
                kinds = substr(text[j], RSTART, RLENGTH)
            }
        }
        if (products == 0) {
            continue
        }
        inner = 1
        for (k = 0; k < ends; k++) {
            inner = inner && loop_end[k] < first ? 1 : 0
        }
        if (!inner) {
            continue
        }
        loop_end[ends++] = i
        loops++
        printf "%-7s %-40s %-18s %4d instructions, %3d products, %d local\n", arch,
               substr(name, 1, 40), kinds, i - first + 1, products, local
        bad += local > 0 || kinds !~ /S8|S4/ ? 1 : 0
    }
}
/^arch = /            { finish(); name = ""; arch = $3 }
/Function :/          { finish(); name = $NF; total = 0
                        if (match(name, /(atom_)?(dense|sparse)_kernelI.*EEEv/)) {
                            name = substr(name, RSTART, RLENGTH - 4)
                        }
                        delete line; delete target; delete text }
match($0, /\/\*[0-9a-f]+\*\/ /) && /;/ {
    at = substr($0, RSTART + 2, RLENGTH - 5)
    sub(/^0+/, "", at)
    code = $0
    sub(/^[^*]*\*[0-9a-f]+\*\/ */, "", code)
    sub(/ *;.*/, "", code)
    line[at] = total
    text[total] = code
    target[total] = ""
    if (code ~ /BRA/ && match(code, /0x[0-9a-f]+$/)) {
        target[total] = substr(code, RSTART + 2)
    }
    total++
}
END {
    finish()
    if (loops == 0) {
        print "check_sass: no loop with matrix instructions found"
        exit 1
    }
    printf "check_sass: %d loops, %d with local memory or without integer products\n", loops, bad
    exit bad > 0 ? 1 : 0
}'
