#!/bin/sh
# A full disk at every write of the chain (full_disk.sh STEP: every STEP-th one): the run fails with a
# clear message and exit code 5, nothing half-made is visible, and the same command then completes to the
# same hashes. FAIL_IO: the preloaded library that plays the full disk.
. "$(dirname "$0")/chain.sh"
step=$1
export ESPL_FAIL_FILE="$work/counters" ESPL_FAIL_UNDER="$work/disk"
mkdir "$work/disk"
sed -i "s|$work/export|$work/disk/export|" "$work/chain.yaml"

with_full_disk() {
    rm -f "$work/counters"
    ESPL_FAIL_AT=$1 ESPL_FAIL_STICKY=$2 ESPL_FAIL_KIND=$3 LD_PRELOAD=$FAIL_IO run_chain "$work/disk/store"
}
calls() { od -A n -t u8 -j "$1" -N 8 "$work/counters" | tr -d ' '; }

with_full_disk 0 0 space || fail "the undisturbed run failed: $(cat "$work/log")"
writes=$(calls 0)
creates=$(calls 8)
hashes "$work/disk/store" >"$work/expected"
[ "$writes" -gt 100 ] || fail "only $writes writes counted: the library is not in place"

check() { # kind n sticky
    rm -rf "$work/disk/store" "$work/disk/export"
    if with_full_disk "$2" "$3" "$1"; then
        tolerated=$((tolerated + 1)) # a log line or a cache that a run can do without
    else
        code=$?
        [ "$code" -eq 5 ] || fail "$1 $2: exit code $code instead of 5: $(cat "$work/log")"
        grep -q -i -e 'no space left' -e 'disk full' "$work/log" ||
            fail "$1 $2: the message does not say that the disk is full: $(cat "$work/log")"
        refused=$((refused + 1))
    fi
    no_half_artifact "$work/disk/store"
    run_chain "$work/disk/store" || fail "$1 $2: the same command failed afterwards: $(cat "$work/log")"
    hashes "$work/disk/store" >"$work/found"
    cmp -s "$work/expected" "$work/found" || fail "$1 $2: other hashes"
    tried=$((tried + 1))
}

tried=0
tolerated=0
refused=0
n=1
while [ "$n" -le "$writes" ]; do
    check space "$n" $((n % 2))
    n=$((n + step))
done
n=1
while [ "$n" -le "$creates" ]; do
    check create "$n" $((n % 2))
    n=$((n + step))
done
[ "$refused" -gt 0 ] || fail "no run was refused"
echo "full disk: $tried of $((writes + creates)) places tried: $refused runs failed clearly, $tolerated did without; every restart completed with equal hashes"
