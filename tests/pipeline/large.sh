#!/bin/sh
# A generated LLaMA-shaped checkpoint of about 4 GB (large.sh BYTES) through import, magnitude-prune and
# export: peak resident memory of every stage process, mapped file pages included, under 700 MB.
. "$(dirname "$0")/chain.sh"
bytes=$1
limit=700000000
"$ESPALIER" synth "$work/checkpoint" --shape llama-2-7b --size "${bytes}B" 2>"$work/log" >/dev/null || fail "$(cat "$work/log")"
cat >"$work/large.yaml" <<TEXT
version: 1
name: large
stages:
  - {id: dense, use: import, with: {checkpoint: $work/checkpoint}}
  - {id: pruned, use: magnitude-prune, in: dense, with: {sparsity: 0.5}}
  - {id: out, use: export, in: pruned, with: {folder: $work/export}}
TEXT
du -sh "$work/checkpoint" | sed 's/^/checkpoint: /'
"$ESPALIER" run "$work/large.yaml" --store "$work/store" --progress none 2>"$work/log" >"$work/out" || fail "$(cat "$work/log")"
status=0
for stage in dense pruned out; do
    side=$(readlink -f "$work/store/by-name/large/$stage.h5" | sed 's/h5$/json/')
    peak=$(sed -n 's/^ *"peak_rss_bytes": \([0-9]*\),*$/\1/p' "$side")
    seconds=$(sed -n 's/^ *"seconds": \([0-9.]*\),*$/\1/p' "$side")
    printf 'stage %-7s peak RSS %4d MB   %6.1f s\n' "$stage" $((peak / 1000000)) "$seconds"
    [ "$peak" -lt $limit ] || status=1
done
[ $status -eq 0 ] || fail "a stage needed more than $((limit / 1000000)) MB"
