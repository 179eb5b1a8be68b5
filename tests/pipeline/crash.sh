#!/bin/sh
# SIGKILL at N random moments of the chain (crash.sh N): alternately the driver alone and its whole
# process group. After each, nothing half-made is visible, the same command completes, and all content
# hashes equal those of an uninterrupted run.
. "$(dirname "$0")/chain.sh"
count=$1

start=$(date +%s%N)
run_chain "$work/whole" || fail "the uninterrupted run failed: $(cat "$work/log")"
took_ms=$((($(date +%s%N) - start) / 1000000))
hashes "$work/whole" >"$work/expected"
[ "$(wc -l <"$work/expected")" -eq "$stages" ] || fail "expected $stages stages: $(cat "$work/expected")"

# Moments spread over a run, from a fixed seed.
awk -v n="$count" -v t="$took_ms" 'BEGIN {
    srand(20261129); for (i = 0; i < n; i++) printf "%.3f\n", 0.005 + rand() * t / 1000 }' >"$work/moments"

# Every third run starts from nothing, the others from a store with gaps.
make_gaps() {
    rm -rf "$work/export"
    if [ $((number % 3)) -eq 0 ] || [ ! -d "$work/store" ]; then
        rm -rf "$work/store"
        return
    fi
    for stage in prune sparse quant order encode eval-pruned heldout; do
        rm -f "$(readlink -f "$work/store/by-name/chain/$stage.h5")"
    done
}

# Starts a run and kills it after $1 s: 0 when it was still running.
kill_after() {
    setsid "$ESPALIER" run "$work/chain.yaml" --store "$work/store" --progress none >/dev/null 2>&1 &
    driver=$!
    sleep "$1"
    target=$driver
    [ $((number % 2)) -eq 0 ] || target=-$driver
    kill -KILL "$target" 2>/dev/null || true
    code=0
    wait "$driver" 2>/dev/null || code=$?
    [ "$code" -eq 137 ]
}

killed=0
resumed=0
number=0
while read -r moment; do
    number=$((number + 1))
    make_gaps
    # A run that ended before its kill proves nothing: again, and sooner.
    until kill_after "$moment"; do
        moment=$(echo "$moment" | awk '{ printf "%.3f", $1 * 0.6 }')
        make_gaps
    done
    killed=$((killed + 1))
    no_half_artifact "$work/store"
    run_chain "$work/store" || fail "restart after the kill at $moment s failed: $(cat "$work/log")"
    # The run prints its folder; its record says what was kept of an unfinished stage.
    if grep -q '"resumed_units": [1-9]' "$(cat "$work/out")/run.json"; then
        resumed=$((resumed + 1))
    fi
    hashes "$work/store" >"$work/found"
    cmp -s "$work/expected" "$work/found" ||
        fail "hashes differ after the kill at $moment s: $(diff "$work/expected" "$work/found")"
    # A killed driver's stage process may outlive it by a moment; the run after cleans up behind it.
    run_chain "$work/store" || fail "a run with nothing to do failed: $(cat "$work/log")"
    leftover=$(find "$work/store/partial" -type f ! -name '*.guard' 2>/dev/null | head -n 3)
    [ -z "$leftover" ] || fail "left in partial/: $leftover"
done <"$work/moments"
[ "$killed" -eq "$count" ] || fail "$killed kills instead of $count"
[ "$resumed" -gt 0 ] || fail "no restart continued an unfinished stage"
echo "crash test: $count kills of a running driver, $resumed restarts resumed finished layers, run of $took_ms ms: all restarts completed, hashes equal"
