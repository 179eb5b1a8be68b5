#!/bin/sh
# A full disk at every STEP-th write of a fetch (disk_full.sh STEP): exit code 5 and a message that
# says so, nothing half-written is visible, and the same command then completes.
. "$(dirname "$0")/servers.sh"
. "$SOURCE/tests/support/disk_places.sh"
serve_original 1500000
serve_archive a.tar -cf
begin_registry
cat >>"$work/registry.yaml" <<TEXT
  full: {kind: text, title: t, licence: none, files: [
    {name: data, url: "$https/data", sha256: $hash},
    {name: a.tar, url: "$https/a.tar", unpack: [{member: inner, name: inner}]}]}
TEXT
export ESPL_FAIL_UNDER="$work/cache"

with_full_disk space 0 0 fetch full --retries 0
[ "$code" -eq 0 ] || fail "the undisturbed fetch failed"
count_places 20

check() { # kind n sticky
    forget
    with_full_disk "$@" fetch full --retries 0
    no_half_blob
    if [ "$code" -ne 0 ]; then
        refused_clearly "$code" "$work/err"
        [ ! -e "$work/cache/sets/full" ] || [ -e "$work/cache/sets/full/set.json" ] || fail "$1 $2: half a set"
    fi
    expect_good full
    cmp -s "$folder/inner" "$original" || fail "$1 $2: the unpacked file is wrong"
}
at_every_place "$1" check
some_refused
echo "full disk: $tried of $all_places places tried, $refused fetches failed clearly; all completed afterwards"
