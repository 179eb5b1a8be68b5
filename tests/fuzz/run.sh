#!/bin/sh
# Runs fuzz targets for SECONDS each: run.sh SECONDS [TARGET...], all when none is named.
# BUILD: folder of the fuzz build. New inputs stay in the build folder, so that the next run goes on
# from them; a crash is reported with the command that repeats it, and fails the run.
# Beside a target stand <name>.dict (words of its language) and <name>.options (of libFuzzer).
set -u
seconds=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
# Our targets are small and quick: a short quarantine and short stacks cost nothing that we use.
export ASAN_OPTIONS="quarantine_size_mb=8:malloc_context_size=8:allocator_release_to_os_interval_ms=-1"
status=0
for name in "$@"; do
    [ -x "$BUILD/tests/fuzz/fuzz_$name" ] || {
        echo "fuzz: there is no target '$name'" >&2
        exit 2
    }
done
for program in "$BUILD"/tests/fuzz/fuzz_*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    name=$(basename "$program" | sed 's/^fuzz_//')
    if [ $# -gt 0 ]; then
        case " $* " in *" $name "*) ;; *) continue ;; esac
    fi
    work=$BUILD/corpus/$name
    mkdir -p "$work" "$BUILD/crashes"
    options=""
    [ ! -f "$here/$name.dict" ] || options="-dict=$here/$name.dict"
    [ ! -f "$here/$name.options" ] || options="$options $(cat "$here/$name.options")"
    log=$BUILD/fuzz-$name.log
    echo "fuzz $name: $seconds s"
    # shellcheck disable=SC2086
    if "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$BUILD/crashes/$name-" $options "$work" "$here/corpus/$name" >"$log" 2>&1; then
        grep -E 'number_of_executed_units|average_exec|cov:' "$log" | tail -n 3 | sed 's/^/    /'
    else
        tail -n 30 "$log"
        echo "fuzz $name: a finding; repeat it with: $program $BUILD/crashes/$name-..."
        status=1
    fi
done
exit $status
