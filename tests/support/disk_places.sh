# Common part of the full-disk tests: . "$SOURCE/tests/support/disk_places.sh", with $work and fail().
# A preloaded library (FAIL_IO: tests/pipeline/fail_io.c) counts writes and new files below
# $ESPL_FAIL_UNDER and plays the full disk at one of them.
# shellcheck shell=sh
export ESPL_FAIL_FILE="$work/counters"

# with_full_disk KIND N STICKY COMMAND...: the N-th call of KIND (space: a write, create: a new file)
# fails, and with STICKY 1 all after it. N = 0: none; the calls are counted all the same.
with_full_disk() {
    kind=$1
    place=$2
    sticky=$3
    shift 3
    rm -f "$work/counters"
    ESPL_FAIL_KIND=$kind ESPL_FAIL_AT=$place ESPL_FAIL_STICKY=$sticky LD_PRELOAD=$FAIL_IO "$@"
}
calls() { od -A n -t u8 -j "$1" -N 8 "$work/counters" | tr -d ' '; }

# count_places LEAST: after an undisturbed run, which must have made more than LEAST writes.
count_places() {
    writes=$(calls 0)
    creates=$(calls 8)
    [ "$writes" -gt "$1" ] || fail "only $writes writes counted: the library is not in place"
}

# refused_clearly CODE MESSAGES: a disturbed command gave up: is it for the right reason, and told?
refused_clearly() {
    refused=$((refused + 1))
    [ "$1" -eq 5 ] || fail "$kind $place: exit code $1 instead of 5: $(cat "$2")"
    grep -q -i -e 'no space left' -e 'disk full' "$2" ||
        fail "$kind $place: the message does not say that the disk is full: $(cat "$2")"
}

# at_every_place STEP COMMAND: `COMMAND KIND N STICKY` for every STEP-th place; a further call goes on
# counting where the last one ended.
at_every_place() {
    for places in "space $writes" "create $creates"; do
        last=${places#* }
        while [ "$next_place" -le "$last" ]; do
            "$2" "${places% *}" "$next_place" $((next_place % 2))
            tried=$((tried + 1))
            next_place=$((next_place + $1))
        done
        next_place=$((next_place - last))
        all_places=$((all_places + last))
    done
}
next_place=1
all_places=0
tried=0
refused=0
some_refused() { [ "$refused" -gt 0 ] || fail "nothing was refused"; }
