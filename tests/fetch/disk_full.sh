#!/bin/sh
# A full disk at every STEP-th write of a fetch (disk_full.sh STEP): exit code 5 and a message that
# says so, nothing half-written is visible, and the same command then completes. FAIL_IO: the preloaded
# library that plays the full disk.
. "$(dirname "$0")/servers.sh"
step=$1
start_apache
original=$work/www/data
make_file "$original" 1500000
hash=$(hash_of "$original")
mkdir "$work/tree"
cp "$original" "$work/tree/inner"
tar -C "$work/tree" -cf "$work/www/a.tar" inner
begin_registry
cat >>"$work/registry.yaml" <<TEXT
  full: {kind: text, title: t, licence: none, files: [
    {name: data, url: "$https/data", sha256: $hash},
    {name: a.tar, url: "$https/a.tar", unpack: [{member: inner, name: inner}]}]}
TEXT
export ESPL_FAIL_FILE="$work/counters" ESPL_FAIL_UNDER="$work/cache"

with_full_disk() { # n sticky kind
    rm -f "$work/counters"
    code=0
    folder=$(ESPL_FAIL_AT=$1 ESPL_FAIL_STICKY=$2 ESPL_FAIL_KIND=$3 LD_PRELOAD=$FAIL_IO "$ESPALIER" fetch full \
        --registry "$work/registry.yaml" --progress none --retries 0 2>"$work/err") || code=$?
}
with_full_disk 0 0 space
[ "$code" -eq 0 ] || fail "the undisturbed fetch failed"
writes=$(od -A n -t u8 -j 0 -N 8 "$work/counters" | tr -d ' ')
creates=$(od -A n -t u8 -j 8 -N 8 "$work/counters" | tr -d ' ')
[ "$writes" -gt 20 ] || fail "only $writes writes counted: the library is not in place"
tried=0
refused=0
check() {
    forget
    with_full_disk "$2" "$3" "$1"
    no_half_blob
    tried=$((tried + 1))
    if [ "$code" -ne 0 ]; then
        refused=$((refused + 1))
        [ "$code" -eq 5 ] || fail "$1 $2: exit code $code instead of 5"
        grep -q -i -e 'no space left' -e 'disk' "$work/err" || fail "$1 $2: the message does not say why"
        [ ! -e "$work/cache/sets/full" ] || [ -e "$work/cache/sets/full/set.json" ] || fail "$1 $2: half a set"
    fi
    expect_good full
    cmp -s "$folder/inner" "$original" || fail "$1 $2: the unpacked file is wrong"
}
n=1
while [ "$n" -le "$writes" ]; do
    check space "$n" $((n % 2))
    n=$((n + step))
done
n=1
while [ "$n" -le "$creates" ]; do
    check create "$n" $((n % 2))
    n=$((n + step))
done
[ "$refused" -gt 0 ] || fail "no fetch was refused"
echo "full disk: $tried of $((writes + creates)) places tried, $refused fetches failed clearly; all completed afterwards"
