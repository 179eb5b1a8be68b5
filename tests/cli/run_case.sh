#!/usr/bin/env bash
# Runs one golden test of the command line.
#
#   run_case.sh BIN SRC CASE.sh
#
# BIN: folders for PATH, the built espalier first; SRC: the source tree. The case runs with sh in an empty folder
# of its own, with BIN before PATH and $SRC set. Beside CASE.sh stand
#   CASE.exit                expected exit code, 0 when absent
#   CASE.stdout.exact|glob   expected standard output; absent = nothing may be printed
#   CASE.stderr.exact|glob   expected standard error, likewise
#   CASE.stdout.ignore       (or stderr) not looked at
# A .glob file holds one shell pattern a line; a line "..." stands for any number of lines.
# Before comparing, the case's folder becomes @TMP@ and SRC becomes @SRC@.
# A case that cannot run here exits with 77 and says why: it is then skipped, never passed.
# ESPL_UPDATE_GOLDEN=1 writes what was printed into the .exact files: read the difference before
# you commit it.
set -u

bin=$1
src=$2
case=$3
base=${case%.sh}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/work"

unset NO_COLOR CI COLUMNS CLICOLOR CLICOLOR_FORCE OMP_NUM_THREADS
export LC_ALL=C.UTF-8 TERM=dumb OMP_NUM_THREADS=2 PATH="$bin:$PATH" SRC="$src"

(cd "$tmp/work" && sh -u "$case" >"$tmp/stdout.raw" 2>"$tmp/stderr.raw" </dev/null)
code=$?
if [[ $code == 77 ]]; then
    cat "$tmp/stderr.raw"
    exit 77
fi

failed=0

# Matches the lines of $1 against the patterns of $2.
match_glob()
{
    local -a lines patterns
    mapfile -t lines <"$1"
    mapfile -t patterns <"$2"
    match_from 0 0
}

match_from()
{
    local line=$1 pattern=$2
    while ((pattern < ${#patterns[@]})); do
        if [[ ${patterns[pattern]} == '...' ]]; then
            for ((; line <= ${#lines[@]}; line++)); do
                match_from "$line" "$((pattern + 1))" && return 0
            done
            return 1
        fi
        # The right side is a pattern on purpose: no quotes.
        # shellcheck disable=SC2053
        if ((line >= ${#lines[@]})) || [[ ${lines[line]} != ${patterns[pattern]} ]]; then
            return 1
        fi
        line=$((line + 1))
        pattern=$((pattern + 1))
    done
    ((line == ${#lines[@]}))
}

check_stream()
{
    local name=$1
    sed -e "s|$tmp/work|@TMP@|g" -e "s|$src|@SRC@|g" "$tmp/$name.raw" >"$tmp/$name"
    [[ -e $base.$name.ignore ]] && return
    if [[ -e $base.$name.glob ]]; then
        if ! match_glob "$tmp/$name" "$base.$name.glob"; then
            echo "$name does not match $base.$name.glob:"
            diff -u "$base.$name.glob" "$tmp/$name"
            failed=1
        fi
        return
    fi
    if [[ -n ${ESPL_UPDATE_GOLDEN:-} ]]; then
        if [[ -s $tmp/$name ]]; then
            cp "$tmp/$name" "$base.$name.exact"
        else
            rm -f "$base.$name.exact"
        fi
    fi
    if [[ -e $base.$name.exact ]]; then
        diff -u "$base.$name.exact" "$tmp/$name" || failed=1
    elif [[ -s $tmp/$name ]]; then
        echo "$name should be empty, but holds:"
        cat "$tmp/$name"
        failed=1
    fi
}

check_stream stdout
check_stream stderr
expected=0
[[ -e $base.exit ]] && expected=$(<"$base.exit")
if [[ -n ${ESPL_UPDATE_GOLDEN:-} && $code != "$expected" ]]; then
    echo "$code" >"$base.exit"
    expected=$code
fi
if [[ $code != "$expected" ]]; then
    echo "exit code $code, expected $expected"
    failed=1
fi
exit $failed
