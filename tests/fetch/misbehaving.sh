#!/bin/sh
# Every way in which a server can misbehave: the fetch either gets the right content, or fails with a
# message that says why; nothing half-written is visible.
. "$(dirname "$0")/servers.sh"
original=$work/original
make_file "$original" 3000001
hash=$(hash_of "$original")
start_bad "$original"
begin_registry
known="sha256: $hash"
for path in good busy/2 broken/3 reset/2 no-range changed/2 ignores/2 stuck/1 beyond misplaced encoded; do
    entry "known-$(echo $path | tr / -)" "$bad/$path" "$known"
done
for path in busy/1 reset/1 changed/1 ignores/1; do entry "new-$(echo $path | tr / -)" "$bad/$path"; done
for path in cut long other wrong-range loop to-file to-ftp to-plain forbidden missing away; do
    entry "$path" "$bad/$path" "$known"
done
entry sized "$bad/good" "size: 3000002"
entry limited "$bad/long" "max_bytes: 3000100"
entry limited-known "$bad/good" "max_bytes: 2999999"
entry reset-for-ever "$bad/reset/99" "$known"
entry encoded "$bad/encoded"
entry absent "$bad/missing" "optional: true"
entry mirrored "$bad/missing\", \"$bad/good" "$known"
sed -i 's/url: "\([^"]*\)", "\([^"]*\)"/url: ["\1", "\2"]/' "$work/registry.yaml"

expect_good known-good
for name in known-busy-2 known-broken-3 known-reset-2 known-no-range known-changed-2 \
    known-ignores-2 known-beyond known-misplaced known-encoded new-busy-1 new-reset-1 new-changed-1 \
    new-ignores-1; do
    forget
    expect_good $name
    case $name in *busy* | *broken*) says 'again in' $name ;; esac
done
# A connection that falls silent is given up and resumed.
forget
expect_good known-stuck-1 --stall-timeout 1s
says 'again in'
# The time that a server asks for is kept.
forget
start=$(date +%s%N)
entry busy-later "$bad/busy/001" "$known"
expect_good busy-later
[ $((($(date +%s%N) - start) / 1000000)) -ge 900 ] || fail "Retry-After: 1 was not kept"
forget
expect_code 1 'HTTP 429' away
says 'come back in 3600 s'

forget
expect_code 1 'ended after 1500000 of 3000001 bytes\|transfer closed' cut --retries 2
expect_code 4 'more than the\|has .* bytes, expected' limited
expect_code 4 'has more than the 2999999 bytes' limited-known
expect_code 4 'has 3000001 bytes, expected 3000002' sized
forget
expect_code 4 'has sha256 .*, expected '"$hash" other
forget
expect_code 4 'another part' wrong-range
expect_code 4 'more than 5 redirects' loop
expect_code 4 'only the same scheme is followed' to-file
expect_code 4 'only the same scheme is followed' to-ftp
expect_code 4 'http is for this machine alone' to-plain
expect_code 4 'compressed, which was not asked for' encoded
expect_code 4 'may need a token' forbidden
expect_code 4 'HTTP 404' missing
expect_code 1 'attempt 3 of 3' reset-for-ever --retries 2
forget
fetch absent
[ "$code" -eq 0 ] && [ ! -e "$folder/data" ] || fail "an optional file that is absent: code $code"
forget
expect_good mirrored
says 'trying the next address'

# A blob that is longer or shorter than it was is fetched anew; offline there is no way to.
for name in known-good new-busy-1; do
    forget
    expect_good $name
    blob=$(find "$work/cache/blobs" -type f)
    chmod u+w "$blob"
    printf 'x' >>"$blob"
    expect_good $name
    chmod u+w "$blob"
    truncate -s 100 "$blob"
    fetch $name --offline
    [ "$code" -eq 4 ] || fail "$name with a cut blob, offline: exit code $code"
    expect_good $name
done

# Offline: what is there is found without the server, what is not is told.
forget
expect_good known-good
kill "$bad_pid"
wait "$bad_pid" 2>/dev/null || true
bad_pid=
expect_good known-good
expect_good known-good --offline
forget
expect_code 4 'forbids to fetch' known-good --offline
expect_code 1 'attempt 2 of 2' known-good --retries 1
# Addresses that may not be used at all.
entry plain "http://example.org/x"
fetch plain
[ "$code" -eq 3 ] || fail "plain http to another machine: exit code $code"
says "is not https"
echo "misbehaving server: all cases passed"
