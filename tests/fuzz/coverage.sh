#!/bin/sh
# Share of the lines of each parser (parsers.txt) that corpus and unit tests reach; fails below 85 %.
#   coverage.sh [PARSER...]           all when none is named
#   coverage.sh targets [PARSER...]   prints what has to be built
# BUILD: folder of a build with -DESPL_COVERAGE=ON.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
least=85
rows() {
    grep -v '^#' "$here/parsers.txt" | tr -s ' ' | sed 's/ *| */|/g' | while IFS= read -r row; do
        case " ${*:-${row%%|*}} " in *" ${row%%|*} "*) printf '%s\n' "$row" ;; esac
    done
}
if [ "${1:-}" = targets ]; then
    shift
    rows "$@" | cut -d '|' -f 3 | tr ' ' '\n' | sort -u
    exit 0
fi
tool() { command -v "$1-14" || command -v "$1"; }
profdata=$(tool llvm-profdata)
cov=$(tool llvm-cov)
cd "$here/../.."
mkdir -p "$BUILD/coverage"
status=0
rows "$@" >"$BUILD/coverage/rows"
[ -s "$BUILD/coverage/rows" ] || {
    echo "coverage: no parser of parsers.txt is named $*" >&2
    exit 2
}
while IFS='|' read -r parser sources programs; do
    raw=""
    objects=""
    for program in $programs; do
        path=$(find "$BUILD/tests" -name "$program" -type f)
        [ -n "$path" ] || {
            echo "coverage: $program is not built" >&2
            exit 1
        }
        profile=$BUILD/coverage/$program.profraw
        corpus=""
        case $program in replay_*) corpus=$here/corpus/${program#replay_} ;; esac
        # A test that fails is for the test run to tell; what it reached counts all the same.
        # shellcheck disable=SC2086
        LLVM_PROFILE_FILE=$profile "$path" $corpus >"$BUILD/coverage/$program.log" 2>&1 ||
            echo "coverage: $program failed: see $BUILD/coverage/$program.log" >&2
        raw="$raw $profile"
        # The first program is an argument, the others are options.
        objects="${objects:+$objects -object }$path"
    done
    # shellcheck disable=SC2086
    "$profdata" merge -o "$BUILD/coverage/$parser.profdata" $raw
    # shellcheck disable=SC2086
    "$cov" report $objects -instr-profile "$BUILD/coverage/$parser.profdata" $sources \
        >"$BUILD/coverage/$parser.txt" 2>"$BUILD/coverage/$parser.err" || {
        cat "$BUILD/coverage/$parser.err" >&2
        exit 1
    }
    # Columns of TOTAL: regions, functions, lines; each count, missed, share.
    share=$(awk '$1 == "TOTAL" { sub("%", "", $10); print $10 }' "$BUILD/coverage/$parser.txt")
    printf '%-12s %6s %% of the lines\n' "$parser" "$share"
    if [ "$(printf '%.0f' "$share")" -lt $least ]; then
        echo "coverage: $parser is below $least %: see $BUILD/coverage/$parser.txt" >&2
        status=1
    fi
done <"$BUILD/coverage/rows"
exit $status
