#!/bin/sh
# Content hashes of the stages whose output does not depend on the CPU. They change only together with a
# stage's cache_version: raise it, then put the new hashes here.
. "$(dirname "$0")/chain.sh"
cat >>"$work/chain.yaml" <<'TEXT'
  - id: rounded   # rounding to nearest without an order looks at the weights alone
    use: atom-quantize
    in: {model: dense, tokens: calib}
    with: {method: rtn, reorder: none, last_layer: 1}
  - {id: rows, use: row-reorder, in: rounded, with: {rows: 2, cols: 1, scope: tile}}
  - {id: encoded, use: iebme-encode, in: {model: rounded, order: rows}, with: {areas: 2x1}}
TEXT
run_chain "$work/store" --until magnitude || fail "$(cat "$work/log")"
run_chain "$work/store" --until pack || fail "$(cat "$work/log")"
run_chain "$work/store" --until heldout || fail "$(cat "$work/log")"
run_chain "$work/store" --until encoded || fail "$(cat "$work/log")"
hashes "$work/store" | grep -E '^(dense|calib|heldout|magnitude|pack|rounded|rows|encoded) ' >"$work/found"
diff "$SOURCE/tests/pipeline/golden_hashes.txt" "$work/found" || fail "content hashes changed"
echo "content hashes as recorded"
