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
[ "$(wc -l <"$work/expected")" -eq 8 ] || fail "expected 8 stages: $(cat "$work/expected")"

# Moments spread over the whole run and a little beyond, from a fixed seed.
awk -v n="$count" -v t="$took_ms" 'BEGIN {
    srand(20261129); for (i = 0; i < n; i++) printf "%.3f\n", rand() * t * 1.1 / 1000 }' >"$work/moments"
killed=0
resumed=0
number=0
while read -r moment; do
    number=$((number + 1))
    rm -rf "$work/export"
    setsid "$ESPALIER" run "$work/chain.yaml" --store "$work/store" --progress none >/dev/null 2>&1 &
    driver=$!
    sleep "$moment"
    if [ $((number % 2)) -eq 0 ]; then
        kill -KILL "$driver" 2>/dev/null && killed=$((killed + 1))
    else
        kill -KILL "-$driver" 2>/dev/null && killed=$((killed + 1))
    fi
    wait "$driver" 2>/dev/null || true
    no_half_artifact "$work/store"
    run_chain "$work/store" || fail "restart after the kill at $moment s failed: $(cat "$work/log")"
    grep -q 'resumed' "$work/log" && resumed=$((resumed + 1))
    hashes "$work/store" >"$work/found"
    cmp -s "$work/expected" "$work/found" ||
        fail "hashes differ after the kill at $moment s: $(diff "$work/expected" "$work/found")"
    # A killed driver's stage process may outlive it by a moment; the run after cleans up behind it.
    run_chain "$work/store" || fail "a run with nothing to do failed: $(cat "$work/log")"
    leftover=$(find "$work/store/partial" -type f ! -name '*.guard' 2>/dev/null | head -n 3)
    [ -z "$leftover" ] || fail "left in partial/: $leftover"
    # Every third time the next run starts from nothing, otherwise from a store with gaps.
    if [ $((number % 3)) -eq 0 ]; then
        rm -rf "$work/store"
    else
        for stage in prune eval-pruned heldout; do
            rm -f "$(readlink -f "$work/store/by-name/chain/$stage.h5")"
        done
    fi
done <"$work/moments"
[ "$killed" -gt $((count / 2)) ] || fail "only $killed of $count runs were still alive when killed"
echo "crash test: $count kills ($killed hit a running driver, $resumed restarts resumed finished layers), run of $took_ms ms: all restarts completed, hashes equal"
