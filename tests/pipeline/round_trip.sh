#!/bin/sh
# Export, import again: the same content hash for the dense model, also when the export is cut into
# shards; for the pruned one every removed weight is zero and a second round trip changes nothing.
. "$(dirname "$0")/chain.sh"
cat >"$work/trip.yaml" <<TEXT
version: 1
name: trip
stages:
  - {id: dense, use: import, with: {checkpoint: datasets/samples/llama-6m}}
  - {id: pruned, use: magnitude-prune, in: dense, with: {sparsity: 0.6}}
  - {id: out-dense, use: export, in: dense, with: {folder: $work/dense, shard_size: 3MB}}
  - {id: out-pruned, use: export, in: pruned, with: {folder: $work/pruned}}
TEXT
cat >"$work/back.yaml" <<TEXT
version: 1
name: back
stages:
  - {id: dense, use: import, with: {checkpoint: $work/dense, storage: reference}}
  - {id: pruned, use: import, with: {checkpoint: $work/pruned}}
  - {id: again, use: export, in: pruned, with: {folder: $work/again}}
TEXT
"$ESPALIER" run "$work/trip.yaml" --store "$work/store" --progress none 2>"$work/log" >/dev/null || fail "$(cat "$work/log")"
"$ESPALIER" run "$work/back.yaml" --store "$work/store" --progress none 2>"$work/log" >/dev/null || fail "$(cat "$work/log")"
content() { "$ESPALIER" inspect "$work/store/by-name/$1.h5" --store "$work/store" --verify --json | json_text content_sha256; }
[ "$(content trip/dense)" = "$(content back/dense)" ] || fail "the dense model has another content hash after the round trip"
[ "$(find "$work/dense" -name 'model-*.safetensors' | wc -l)" -gt 1 ] || fail "the export was not cut into shards"
cmp -s "$work/pruned/model.safetensors" "$work/again/model.safetensors" || fail "the pruned weights changed on the way"
[ -f "$work/pruned/espalier-masks.safetensors" ] || fail "no masks beside the pruned checkpoint"
# Removed weights are stored as zero, and no others: counted by espalier itself against the mask.
"$ESPALIER" inspect back:pruned --store "$work/store" --all --stats >"$work/layers" || fail "inspect failed"
echo "round trip: dense content hash $(content trip/dense) kept, pruned bytes equal"
