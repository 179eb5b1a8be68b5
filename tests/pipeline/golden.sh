#!/bin/sh
# Content hashes of the stages whose output does not depend on the CPU. They change only together with a
# stage's cache_version: raise it, then put the new hashes here.
. "$(dirname "$0")/chain.sh"
run_chain "$work/store" --until magnitude || fail "$(cat "$work/log")"
run_chain "$work/store" --until heldout || fail "$(cat "$work/log")"
run_chain "$work/store" --until calib || fail "$(cat "$work/log")"
hashes "$work/store" | grep -E '^(dense|calib|heldout|magnitude) ' >"$work/found"
diff "$SOURCE/tests/pipeline/golden_hashes.txt" "$work/found" || fail "content hashes changed"
echo "content hashes as recorded"
