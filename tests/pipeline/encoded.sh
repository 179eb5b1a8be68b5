#!/bin/sh
# A model evaluated from its encoded file is the quantised model, to the last bit: without a row order,
# with one by stripe and with one by tile, in areas that use them. Exported, it has the same weights.
. "$(dirname "$0")/chain.sh"
cat >"$work/encoded.yaml" <<TEXT
version: 1
name: encoded
seed: 42
stages:
  - {id: dense, use: import, with: {checkpoint: datasets/samples/llama-6m}}
  - id: calib
    use: tokens
    with: {tokenizer: datasets/samples/llama-6m, text: datasets/samples/novels-calib-sample.txt.xz, samples: 4, sequence_length: 64}
  - id: heldout
    use: tokens
    with: {tokenizer: datasets/samples/llama-6m, text: datasets/samples/novels-test-sample.txt.xz}
  - {id: prune, use: wanda-prune, in: {model: dense, tokens: calib}, with: {sparsity: 0.7}}
  - {id: quant, use: atom-quantize, in: {model: prune, tokens: calib}, with: {ignore: ["layers.1.self_attn.*"]}}
  - {id: stripes, use: row-reorder, in: quant}
  - {id: tiles, use: row-reorder, in: quant, with: {rows: 2, cols: 1, scope: tile}}
  - {id: plain, use: iebme-encode, in: quant}
  - {id: striped, use: iebme-encode, in: {model: quant, order: stripes}, with: {areas: 2x2}}
  - {id: tiled, use: iebme-encode, in: {model: quant, order: tiles}, with: {areas: 2x1}}
  - {id: eval-quant, use: evaluate, in: {model: quant, tokens: heldout, base: dense}, with: {sequence_length: 128, windows: 4}}
  - {id: eval-plain, use: evaluate, in: {model: plain, tokens: heldout, base: dense}, with: {sequence_length: 128, windows: 4}}
  - {id: eval-striped, use: evaluate, in: {model: striped, tokens: heldout, base: dense}, with: {sequence_length: 128, windows: 4}}
  - {id: eval-tiled, use: evaluate, in: {model: tiled, tokens: heldout, base: dense}, with: {sequence_length: 128, windows: 4}}
  - {id: out-quant, use: export, in: quant, with: {folder: $work/quant}}
  - {id: out-tiled, use: export, in: tiled, with: {folder: $work/tiled}}
TEXT
"$ESPALIER" run "$work/encoded.yaml" --store "$work/store" --progress none >"$work/out" 2>"$work/log" ||
    fail "$(cat "$work/log")"
figures="$work/store/by-name/encoded/metrics.json"
figure() { sed -n "s/^ *\"$1\": \([^,]*\),*\$/\1/p" "$figures"; }
for id in plain striped tiled; do
    for name in perplexity kl mean_nll; do
        [ -n "$(figure "eval-$id.$name")" ] || fail "no $name of eval-$id"
        [ "$(figure "eval-$id.$name")" = "$(figure "eval-quant.$name")" ] ||
            fail "$name of '$id' is $(figure "eval-$id.$name"), of 'quant' $(figure "eval-quant.$name")"
    done
done
for id in striped tiled; do
    case $(figure "$id.linears_reordered") in
    [1-9]*) ;;
    *) fail "no linear of '$id' uses its row order" ;;
    esac
done
cmp -s "$work/quant/model.safetensors" "$work/tiled/model.safetensors" ||
    fail "exported weights of the encoded model differ"
"$ESPALIER" inspect encoded:tiled --store "$work/store" --verify >"$work/inspect" || fail "inspect failed"
grep -q "model.iebme/1" "$work/inspect" || fail "inspect does not name the kind"
# It stands alone: no other artifact is needed to read it.
file=$(readlink -f "$work/store/by-name/encoded/tiled.h5")
mkdir "$work/alone"
cp "$file" "$work/alone/model.h5"
"$ESPALIER" inspect "$work/alone/model.h5" --store "$work/alone" --stats >/dev/null 2>"$work/log" ||
    fail "a copy elsewhere cannot be read: $(cat "$work/log")"
echo "encoded models evaluate as the quantised one: perplexity $(figure eval-quant.perplexity)"
