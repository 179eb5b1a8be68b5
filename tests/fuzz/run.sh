#!/bin/sh
# Runs every fuzz target for SECONDS: run.sh SECONDS. BUILD: folder of the fuzz build.
# New inputs stay in the build folder; a crash is reported with the command that repeats it.
set -u
seconds=$1
here=$(cd "$(dirname "$0")" && pwd)
status=0
for program in "$BUILD"/tests/fuzz/fuzz_*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    name=$(basename "$program" | sed 's/^fuzz_//')
    work=$BUILD/corpus/$name
    mkdir -p "$work" "$BUILD/crashes"
    dict=""
    [ -f "$here/$name.dict" ] && dict="-dict=$here/$name.dict"
    log=$BUILD/fuzz-$name.log
    echo "fuzz $name: $seconds s"
    # shellcheck disable=SC2086
    if "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$BUILD/crashes/$name-" $dict "$work" "$here/corpus/$name" >"$log" 2>&1; then
        grep -E 'number_of_executed_units|cov:' "$log" | tail -n 2 | sed 's/^/    /'
    else
        tail -n 30 "$log"
        echo "fuzz $name: a finding; repeat it with: $program $BUILD/crashes/$name-..."
        status=1
    fi
done
exit $status
