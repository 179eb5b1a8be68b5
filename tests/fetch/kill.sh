#!/bin/sh
# SIGKILL at N random moments of a fetch (kill.sh N): the program alone, espalier-fetch alone, or both
# at once, in turn. After each, nothing half-written is visible, and in the end the hash is right.
. "$(dirname "$0")/servers.sh"
count=$1
start_apache
original=$work/www/data
make_file "$original" 6000000
hash=$(hash_of "$original")
mkdir "$work/tree"
cp "$original" "$work/tree/inner"
tar -C "$work/tree" -czf "$work/www/a.tar.gz" inner
begin_registry
cat >>"$work/registry.yaml" <<TEXT
  killed: {kind: text, title: t, licence: none, files: [
    {name: data, url: "$https/slow/data", sha256: $hash},
    {name: unpinned, url: "$https/slow/a.tar.gz", unpack: [{member: inner, name: inner}]}]}
TEXT
start=$(date +%s%N)
expect_good killed
took_ms=$((($(date +%s%N) - start) / 1000000))
awk -v n="$count" -v t="$took_ms" 'BEGIN {
    srand(9); for (i = 0; i < n; i++) printf "%.3f\n", 0.03 + rand() * t / 1000 }' >"$work/moments"

# Starts a fetch and kills it after $1 s: true when it was still running.
kill_after() {
    setsid "$ESPALIER" fetch killed --registry "$work/registry.yaml" --progress none --retry-delay 20ms \
        >/dev/null 2>"$work/err" &
    fetching=$!
    sleep "$1"
    # By name: a sanitizer's helper that dies leaves its program waiting for ever.
    worker=
    for child in $(cat /proc/"$fetching"/task/"$fetching"/children 2>/dev/null); do
        [ "$(cat /proc/"$child"/comm 2>/dev/null)" != espalier-fetch ] || worker=$child
    done
    case $((number % 3)) in
    0) kill -KILL "$fetching" 2>/dev/null || true ;;
    1) kill -KILL -"$fetching" 2>/dev/null || true ;;
    2) [ -z "$worker" ] || kill -KILL "$worker" 2>/dev/null || true ;;
    esac
    code=0
    wait "$fetching" 2>/dev/null || code=$?
    # Without its program espalier-fetch ends by itself.
    waits=0
    while [ -n "$worker" ] && [ "$(cat /proc/"$worker"/comm 2>/dev/null)" = espalier-fetch ]; do
        waits=$((waits + 1))
        [ "$waits" -lt 300 ] || fail "espalier-fetch outlives its program: kill $number"
        sleep 0.1
    done
    [ "$code" -ne 0 ]
}

killed=0
resumed=0
number=0
forget
while read -r moment; do
    number=$((number + 1))
    # Every fifth starts from nothing, the others from what the last one left.
    [ $((number % 5)) -ne 0 ] || forget
    # A fetch that ended before its kill proves nothing: again, from nothing, and sooner.
    until kill_after "$moment"; do
        forget
        moment=$(echo "$moment" | awk '{ printf "%.3f", $1 * 0.7 + 0.01 }')
    done
    killed=$((killed + 1))
    [ $((number % 3)) -ne 2 ] || says 'died from signal 9'
    if [ -e "$work/cache/sets/killed" ]; then
        for name in data inner; do
            cmp -s "$work/cache/sets/killed/$name" "$original" || fail "a set was published half: kill $number"
        done
    fi
    no_half_blob
    [ -z "$(ls "$work/cache/partial" 2>/dev/null)" ] || resumed=$((resumed + 1))
done <"$work/moments"
expect_good killed
cmp -s "$folder/inner" "$original" || fail "the unpacked file is wrong"
# A lock whose owner was killed right after the last step may stay: it holds nobody up.
left=$(ls "$work/cache/partial" | grep -v -e '\.lock$' -e '\.guard$' || true)
[ -z "$left" ] || fail "left in partial/: $left"
[ "$killed" -eq "$count" ] || fail "$killed kills instead of $count"
echo "kill test: $killed running fetches killed (run of $took_ms ms), $resumed left something to go on from; hashes right"
