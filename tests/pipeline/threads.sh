#!/bin/sh
# The same bytes for 1, 2 and 3 threads: every artifact file of the chain, not only its content hash.
. "$(dirname "$0")/chain.sh"
for threads in 1 2 3; do
    rm -rf "$work/export"
    OMP_NUM_THREADS=$threads run_chain "$work/store$threads" || fail "$(cat "$work/log")"
    (cd "$work/store$threads/store" && find . -name '*.h5' | sort | xargs sha256sum) >"$work/sums$threads"
    (cd "$work/export" && find . -type f | sort | xargs sha256sum) >>"$work/sums$threads"
done
for threads in 2 3; do
    cmp -s "$work/sums1" "$work/sums$threads" ||
        fail "1 and $threads threads differ: $(diff "$work/sums1" "$work/sums$threads")"
done
echo "$(wc -l <"$work/sums1") files are byte-identical for 1, 2 and 3 threads"
