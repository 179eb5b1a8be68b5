#!/bin/sh
# SIGKILL at N random moments of a fetch (kill.sh N): the program alone, espalier-fetch alone, or both
# at once, in turn. After each, nothing half-written is visible, and in the end the hash is right.
. "$(dirname "$0")/servers.sh"
count=$1
serve_original 6000000
serve_archive a.tar.gz -czf
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

# is_running PID NAME (a pattern): there, of that name, and no zombie.
is_running() { grep -q "^[0-9]* ($2) [^Z]" "/proc/$1/stat" 2>/dev/null; }
# By name: a sanitizer's helper that dies leaves its program waiting for ever.
find_worker() {
    worker=
    for child in $(cat "/proc/$fetching/task/$fetching/children" 2>/dev/null); do
        ! is_running "$child" espalier-fetch || worker=$child
    done
}
worker_or_end() {
    find_worker
    [ -n "$worker" ] || ! is_running "$fetching" '.*'
}
worker_is_gone() { [ -z "$worker" ] || ! is_running "$worker" espalier-fetch; }

# Starts a fetch and kills it after $1 s: true when it was still running.
kill_after() {
    setsid "$ESPALIER" fetch killed --registry "$work/registry.yaml" --progress none --retry-delay 20ms \
        >/dev/null 2>"$work/err" &
    fetching=$!
    sleep "$1"
    find_worker
    # On a busy machine it may not be there yet, and without it there is nothing to kill.
    [ $((number % 3)) -ne 2 ] || wait_for "espalier-fetch" worker_or_end
    case $((number % 3)) in
    0) kill -KILL "$fetching" 2>/dev/null || true ;;
    1) kill -KILL -"$fetching" 2>/dev/null || true ;;
    2) [ -z "$worker" ] || kill -KILL "$worker" 2>/dev/null || true ;;
    esac
    code=0
    wait "$fetching" 2>/dev/null || code=$?
    # Without its program espalier-fetch ends by itself.
    wait_for "the end of espalier-fetch after kill $number" worker_is_gone
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
