#!/bin/sh
# Two and then four runs of the same job at once: all end well and every stage is done once.
. "$(dirname "$0")/chain.sh"
for runs in 2 4; do
    rm -rf "$work/store" "$work/export"
    pids=""
    i=0
    while [ $i -lt $runs ]; do
        "$ESPALIER" run "$work/chain.yaml" --store "$work/store" --progress none >"$work/out$i" 2>"$work/log$i" &
        pids="$pids $!"
        i=$((i + 1))
    done
    for pid in $pids; do
        wait "$pid" || fail "one of $runs runs failed: $(cat "$work"/log*)"
    done
    done_states=$(cat "$work"/store/runs/*/run.json | grep -c '"state": "done"' || true)
    cached_states=$(cat "$work"/store/runs/*/run.json | grep -c '"state": "cached"' || true)
    [ "$done_states" -eq "$stages" ] || fail "$runs runs: $done_states stages were executed instead of $stages"
    [ $((done_states + cached_states)) -eq $((stages * runs)) ] || fail "$runs runs: $cached_states cached stages"
    no_half_artifact "$work/store"
done
echo "two and four runs at once: $stages stages, each executed once"
