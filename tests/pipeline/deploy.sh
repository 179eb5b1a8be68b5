#!/bin/sh
# deploy-bench on the CPU of whatever machine this is: the encoded sample model is measured, what must hold
# is checked, the result is taken from the store until --remeasure, and the report draws it.
. "$(dirname "$0")/chain.sh"
cat >"$work/deploy.yaml" <<TEXT
version: 1
name: deploy
seed: 42
device: cpu
stages:
  - {id: dense, use: import, with: {checkpoint: datasets/samples/llama-6m}}
  - id: calib
    use: tokens
    with: {tokenizer: datasets/samples/llama-6m, text: datasets/samples/novels-calib-sample.txt.xz, samples: 2, sequence_length: 64}
  - {id: prune, use: magnitude-prune, in: dense, with: {sparsity: 0.5}}
  - {id: quant, use: atom-quantize, in: {model: prune, tokens: calib}, with: {method: rtn, max_perplexity_ratio: 0}}
  - {id: order, use: row-reorder, in: quant}
  - {id: encode, use: iebme-encode, in: {model: quant, order: order}, with: {areas: 2x2}}
  - id: bench
    use: deploy-bench
    in: encode
    with: {tokens: [1, 8], repeats: 3, threads: 1, forms: [dense, 1x1, 2x2]}
    expect: {linears_seconds_n8: {max: 60}, speedup_over_1x1_n1: {min: 0.0001}}
TEXT
run() {
    "$ESPALIER" run "$work/deploy.yaml" --store "$work/store" --progress none "$@" >"$work/out" 2>"$work/log"
}
run || fail "$(cat "$work/log")"
figures="$work/store/by-name/deploy/metrics.json"
figure() { sed -n "s/^ *\"bench.$1\": \([^,]*\),*\$/\1/p" "$figures"; }
for name in matrices linears_seconds_n1 linears_seconds_n8 share_of_floor_n8 regret_n8 speedup_over_sgemm_f32_n1; do
    [ -n "$(figure "$name")" ] || fail "no figure '$name'"
done
[ -z "$(figure linears_seconds_n2)" ] || fail "2 tokens were measured, too"
# llama-6m has q and o, k and v, gate and up, down: four shapes
[ "$(figure matrices)" = 4.0 ] || fail "$(figure matrices) matrices, expected 4"
"$ESPALIER" inspect deploy:bench --store "$work/store" --verify >"$work/inspect" || fail "inspect failed"
grep -q "bench.spmm/1" "$work/inspect" || fail "inspect does not name the kind"
for part in 'id="products"' 'Speed-ups by number of tokens, stage bench' 'Roofline with measured products, stage bench'; do
    grep -q "$part" "$work/store/by-name/deploy/report.html" || fail "the report has no '$part'"
done

# A measurement is kept with its figures, and made again on request.
first=$(figure linears_seconds_n8)
run || fail "$(cat "$work/log")"
[ "$(figure linears_seconds_n8)" = "$first" ] || fail "a cached measurement changed"
"$ESPALIER" plan "$work/deploy.yaml" --store "$work/store" --remeasure --json >"$work/plan" || fail "plan failed"
[ "$(grep -o '"state": "[a-z]*"' "$work/plan" | grep -c run)" = 1 ] ||
    fail "--remeasure runs other stages than one: $(cat "$work/plan")"

# A threshold that does not hold.
sed 's/max: 60/max: 1e-9/' "$work/deploy.yaml" >"$work/strict.yaml"
mv "$work/strict.yaml" "$work/deploy.yaml"
code=0
run || code=$?
[ "$code" = 7 ] || fail "exit $code, expected 7: $(cat "$work/log")"
grep -q "expectation failed" "$work/log" || fail "no word of the expectation: $(cat "$work/log")"
echo "deploy-bench: $(figure matrices) matrices, $(figure linears_seconds_n8) s at 8 tokens"
