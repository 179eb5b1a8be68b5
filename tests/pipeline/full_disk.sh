#!/bin/sh
# A full disk at every write of the chain (full_disk.sh STEP: every STEP-th one): the run fails with a
# clear message and exit code 5, nothing half-made is visible, and the same command then completes to the
# same hashes.
. "$(dirname "$0")/chain.sh"
. "$SOURCE/tests/support/disk_places.sh"
export ESPL_FAIL_UNDER="$work/disk"
mkdir "$work/disk"
sed -i "s|$work/export|$work/disk/export|" "$work/chain.yaml"

with_full_disk space 0 0 run_chain "$work/disk/store" || fail "the undisturbed run failed: $(cat "$work/log")"
count_places 100
hashes "$work/disk/store" >"$work/expected"

check() { # kind n sticky
    rm -rf "$work/disk/store" "$work/disk/export"
    if with_full_disk "$@" run_chain "$work/disk/store"; then
        tolerated=$((tolerated + 1)) # a log line or a cache that a run can do without
    else
        refused_clearly $? "$work/log"
    fi
    no_half_artifact "$work/disk/store"
    run_chain "$work/disk/store" || fail "$1 $2: the same command failed afterwards: $(cat "$work/log")"
    hashes "$work/disk/store" >"$work/found"
    cmp -s "$work/expected" "$work/found" || fail "$1 $2: other hashes"
}
tolerated=0
at_every_place "$1" check
echo "full disk: $tried of $((writes + creates)) places tried: $refused runs failed clearly, $tolerated did without; every restart completed with equal hashes"
