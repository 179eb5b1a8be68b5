#!/bin/sh
# A packed model evaluates and exports as the same INT8 codes that atom-quantize makes and stores plainly, to the
# last bit, whether rows share their patterns or not; it stands alone.
. "$(dirname "$0")/chain.sh"
cat >"$work/packed.yaml" <<TEXT
version: 1
name: packed
seed: 42
stages:
  - {id: dense, use: import, with: {checkpoint: datasets/samples/llama-6m}}
  - id: text
    use: tokens
    with: {tokenizer: datasets/samples/llama-6m, text: datasets/samples/novels-test-sample.txt.xz, samples: 2, sequence_length: 64}
  - {id: single, use: magnitude-prune, in: dense, with: {pattern: "4:8"}}
  - {id: shared, use: magnitude-prune, in: dense, with: {pattern: "4:8", vector: 16}}
  - {id: pack-single, use: nm-pack, in: single}
  - {id: pack-shared, use: nm-pack, in: shared}
TEXT
for id in single shared; do
    cat >>"$work/packed.yaml" <<TEXT
  - id: plain-$id
    use: atom-quantize
    in: {model: $id, tokens: text}
    with: {method: rtn, scale: half, reorder: none, weight_bits: 8, activation_bits: 8, kv_bits: 16, group_size: 0, outlier_channels: 0, rows_per_scale: 1, weight_clip: 1, activation_clip: 1, max_perplexity_ratio: 0}
  - {id: eval-$id, use: evaluate, in: {model: pack-$id, tokens: text, base: dense}}
  - {id: eval-plain-$id, use: evaluate, in: {model: plain-$id, tokens: text, base: dense}}
  - {id: out-$id, use: export, in: pack-$id, with: {folder: $work/$id}}
  - {id: out-plain-$id, use: export, in: plain-$id, with: {folder: $work/plain-$id}}
TEXT
done
"$ESPALIER" run "$work/packed.yaml" --store "$work/store" --progress none >"$work/out" 2>"$work/log" ||
    fail "$(cat "$work/log")"
figures="$work/store/by-name/packed/metrics.json"
figure() { sed -n "s/^ *\"$1\": \([^,]*\),*\$/\1/p" "$figures"; }
for id in single shared; do
    for name in perplexity kl mean_nll; do
        [ -n "$(figure "eval-$id.$name")" ] || fail "no $name of eval-$id"
        [ "$(figure "eval-$id.$name")" = "$(figure "eval-plain-$id.$name")" ] ||
            fail "$name packed is $(figure "eval-$id.$name"), plain $(figure "eval-plain-$id.$name")"
    done
    cmp -s "$work/$id/model.safetensors" "$work/plain-$id/model.safetensors" ||
        fail "exported weights of '$id' differ"
done
[ "$(figure pack-single.linears_v1)" = "$(figure pack-single.linears)" ] || fail "single patterns were shared"
[ "$(figure pack-shared.linears_v16)" = "$(figure pack-shared.linears)" ] || fail "shared patterns were not found"
file=$(readlink -f "$work/store/by-name/packed/pack-shared.h5")
mkdir "$work/alone"
cp "$file" "$work/alone/model.h5"
"$ESPALIER" inspect "$work/alone/model.h5" --store "$work/alone" --stats --verify >/dev/null 2>"$work/log" ||
    fail "a copy elsewhere cannot be read: $(cat "$work/log")"
echo "packed models evaluate as plain INT8 codes: perplexity $(figure eval-single.perplexity), $(figure eval-shared.perplexity)"
