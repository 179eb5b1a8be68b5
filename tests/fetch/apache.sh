#!/bin/sh
# Fetches from a real server over TLS: authority, redirects, resuming, archives, repositories of a hub
# (one file, shards, a branch that is pinned), the token, the sets that jobs use.
. "$(dirname "$0")/servers.sh"
serve_original 4000000
begin_registry
entry plain "$https/data" "sha256: $hash" "size: 4000000"
entry slow "$https/slow/data" "sha256: $hash"
entry crawl "$https/crawl/data" "sha256: $hash"
entry unpinned "$https/data"
entry moved "$https/moved/data" "sha256: $hash"
entry down "$https/down/data" "sha256: $hash"
entry round "$https/round" "sha256: $hash"
entry missing "$https/nothing" "sha256: $hash"
entry local "http://127.0.0.1:$plain_port/data" "sha256: $hash"

expect_good plain
forget
expect_good moved
expect_good local
forget
expect_code 4 'only the same scheme is followed' down
expect_code 4 'more than 5 redirects' round
expect_code 4 'HTTP 404' missing

# Another authority is refused, whatever it signs.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=other" \
    -keyout "$work/tls/other.key" -out "$work/tls/other.pem" 2>/dev/null
expect_code 1 'certificate' plain --ca-file "$work/tls/other.pem" --retries 1
says 'ca-file'

# A partial file goes on where it stopped: the server sends the rest alone.
forget
mkdir -p "$work/cache/partial"
head -c 3000000 "$original" >"$work/cache/partial/$hash"
fresh_log
expect_good plain
logged '^GET /data 206 1000000 bytes=3000000-$'
# One that holds something else is found out by its hash, and fetched anew.
forget
mkdir -p "$work/cache/partial"
head -c 3000000 /dev/zero >"$work/cache/partial/$hash"
expect_good plain
# One that is longer than the file too.
forget
mkdir -p "$work/cache/partial"
cat "$original" "$original" >"$work/cache/partial/$hash"
expect_good plain
# One that is whole needs no content.
forget
mkdir -p "$work/cache/partial"
cp "$original" "$work/cache/partial/$hash"
expect_good plain
# One that is left although the content came by another way is removed.
printf 'left' >"$work/cache/partial/$hash"
printf '{"validator":"x"}' >"$work/cache/partial/$hash.json"
expect_good plain
[ -z "$(ls "$work/cache/partial")" ] || fail "left in partial/: $(ls "$work/cache/partial")"

# An interrupt leaves what is there; the same command continues after it.
forget
"$ESPALIER" fetch crawl --registry "$work/registry.yaml" \
    --progress none >/dev/null 2>"$work/err" &
fetching=$!
wait_for "the first bytes" test -s "$work/cache/partial/$hash"
kill -INT "$fetching"
code=0
wait "$fetching" || code=$?
[ "$code" -eq 130 ] || fail "interrupted: exit code $code instead of 130"
says 'the same command continues it'
[ -s "$work/cache/partial/$hash" ] || fail "nothing was kept"
fresh_log
expect_good slow
logged ' 206 .* bytes=[1-9]'
[ -z "$(ls "$work/cache/partial")" ] || fail "left in partial/: $(ls "$work/cache/partial")"

# A file without a published hash is recorded: the same later, or an error; --update takes the new.
forget
expect_good unpinned
rm -rf "$work"/cache/blobs
printf changed >"$work/www/data.new"
mv "$original" "$work/www/data.old"
mv "$work/www/data.new" "$original"
fetch unpinned
[ "$code" -eq 4 ] || fail "a changed file: exit code $code"
says 'changed since it was fetched first'
expect_good unpinned --update
mv "$work/www/data.old" "$original"

# Two at once share the work: the content travels once.
forget
fresh_log
"$ESPALIER" fetch slow --registry "$work/registry.yaml" \
    --progress none >"$work/one" 2>"$work/err" &
one=$!
"$ESPALIER" fetch slow --registry "$work/registry.yaml" \
    --progress none >"$work/two" 2>"$work/err2" || fail "the second of two failed: $(cat "$work/err2")"
wait "$one" || fail "the first of two failed"
cmp -s "$work/one" "$work/two" || fail "two fetches give two folders"
logged_no_more
[ "$(grep -c '^GET' "$work/access.log")" -eq 1 ] || fail "not shared: $(cat "$work/access.log")"
no_half_blob

# Archives: named members only, and nothing that is a link or a pipe, too large or missing.
mkdir -p "$work/tree/inner"
printf 'the text\n' >"$work/tree/inner/text"
ln -s /etc/passwd "$work/tree/inner/link"
mkfifo "$work/tree/inner/pipe"
head -c 3000000 /dev/zero >"$work/tree/inner/big"
tar -C "$work/tree" -czf "$work/www/a.tar.gz" ./inner/text inner/link inner/pipe inner/big
truncate -s 300000000 "$work/tree/bomb"
tar -C "$work/tree" -cf - bomb inner/text | gzip -1 >"$work/www/bomb.tar.gz"
head -c 1000000 "$original" >"$work/www/bad.tar.gz"
head -c 300 "$work/www/a.tar.gz" >"$work/www/cut.tar.gz"
(cd "$work/tree" && tar -cf "$work/www/up.tar" --transform 's|inner/text|../../escaped|' inner/text inner/big)
entry good-archive "$https/a.tar.gz" "unpack: [{member: inner/text, name: t/text}]"
entry link-archive "$https/a.tar.gz" "unpack: [{member: inner/link, name: text}]"
entry pipe-archive "$https/a.tar.gz" "unpack: [{member: inner/pipe, name: text}]"
entry big-archive "$https/a.tar.gz" "unpack: [{member: inner/big, name: text, max_bytes: 2999999}]"
entry no-member "$https/a.tar.gz" "unpack: [{member: inner/none, name: text}]"
entry bad-archive "$https/bad.tar.gz" "unpack: [{member: inner/text, name: text}]"
entry cut-archive "$https/cut.tar.gz" "unpack: [{member: inner/big, name: text}]"
entry up-archive "$https/up.tar" "unpack: [{member: inner/big, name: text}]"
entry up-member "$https/up.tar" "unpack: [{member: escaped, name: text}]"
entry bomb-archive "$https/bomb.tar.gz" "unpack: [{member: inner/text, name: text}]"
fetch good-archive
[ "$code" -eq 0 ] && [ "$(cat "$folder/t/text")" = "the text" ] || fail "archive: code $code"
expect_code 4 'is a link or no regular file' link-archive
expect_code 4 'is a link or no regular file' pipe-archive
expect_code 4 'larger than 2999999 bytes' big-archive
expect_code 4 'expands to more than 200 times its size' bomb-archive
expect_code 4 "has no 'inner/none'" no-member
expect_code 4 "has no 'escaped'" up-member
expect_code 4 'damaged' bad-archive
expect_code 4 'damaged' cut-archive
fetch up-archive
[ "$code" -eq 0 ] || fail "an archive with a bad name beside: code $code"
[ -z "$(find "$work" -name escaped)" ] || fail "a path led out of the archive"

# Repositories of a hub: one weights file, shards by an index, a branch that is pinned.
commit=0123456789abcdef0123456789abcdef01234567
for revision in main $commit; do
    mkdir -p "$work/www/lab/single/resolve/$revision" "$work/www/lab/sharded/resolve/$revision"
    cp "$SOURCE"/datasets/samples/llama-6m/config.json "$SOURCE"/datasets/samples/llama-6m/model.safetensors \
        "$work/www/lab/single/resolve/$revision"
    cp "$SOURCE"/datasets/samples/llama-6m/config.json "$work/www/lab/sharded/resolve/$revision"
    (
        cd "$work/www/lab/sharded/resolve/$revision"
        printf one >a-00001-of-00002.safetensors
        printf two >a-00002-of-00002.safetensors
        printf '{"weight_map": {"x": "a-00001-of-00002.safetensors", "y": "a-00002-of-00002.safetensors"}}' \
            >model.safetensors.index.json
    )
done
for name in pickle escape; do
    mkdir -p "$work/www/lab/$name/resolve/$commit"
    echo '{}' >"$work/www/lab/$name/resolve/$commit/config.json"
    ln -s "$commit" "$work/www/lab/$name/resolve/main"
done
printf '{"weight_map": {"x": "../../../../etc/passwd.safetensors"}}' \
    >"$work/www/lab/escape/resolve/$commit/model.safetensors.index.json"
for name in single sharded pickle escape; do
    cat >>"$work/registry.yaml" <<TEXT
  $name: {kind: model, title: t, licence: none, hub: {repository: lab/$name, revision: main},
    files: [config.json, {name: tokenizer.json, optional: true}], weights: safetensors}
TEXT
done
export ESPALIER_HUB="$https/" # with a slash at its end, as people write it
fresh_log
fetch single
[ "$code" -eq 0 ] || fail "hub: exit code $code"
cmp -s "$folder/model.safetensors" "$SOURCE/datasets/samples/llama-6m/model.safetensors" || fail "hub: other weights"
grep -q "\"revision\": \"$commit\"" "$folder/set.json" || fail "the branch was not pinned"
logged "GET /lab/single/resolve/$commit/model.safetensors 200"
fresh_log
fetch single
logged_no_more
[ "$code" -eq 0 ] && ! grep -q GET "$work/access.log" || fail "hub, again: code $code, $(cat "$work/access.log")"
fetch single --offline
[ "$code" -eq 0 ] || fail "hub, offline: exit code $code"
fetch sharded --parallel 1
[ "$code" -eq 0 ] && [ "$(cat "$folder"/a-0000?-of-00002.safetensors)" = onetwo ] || fail "shards: code $code"
fetch pickle
[ "$code" -eq 4 ] || fail "a repository without safetensors: exit code $code"
says 'may hold pickle files only'
expect_code 4 'index' escape

# `source:` of a stage is the fetched set; an unknown one says how to get it.
cat >"$work/job.yaml" <<'TEXT'
version: 1
name: fetched
stages:
  - {id: dense, use: import, with: {source: single}}
TEXT
(cd "$work" && "$ESPALIER" run job.yaml --progress none >"$work/out" 2>"$work/err") || fail "source: $(cat "$work/err")"
cat >"$work/job3.yaml" <<TEXT
version: 1
name: text
stages:
  - {id: text, use: tokens, with: {source: good-archive/t/text, tokenizer: $SOURCE/datasets/samples/llama-6m}}
TEXT
(cd "$work" && "$ESPALIER" run job3.yaml --progress none >"$work/out" 2>"$work/err") || fail "source: $(cat "$work/err")"
sed 's/source: single/source: singel/' "$work/job.yaml" >"$work/job2.yaml"
code=0
(cd "$work" && "$ESPALIER" plan job2.yaml >"$work/out" 2>"$work/err") || code=$?
[ "$code" -eq 4 ] || fail "an unknown source: exit code $code"
says "did you mean 'single'"

# gc keeps what sets name; a set that is removed frees its files.
"$ESPALIER" gc --store "$work/results" --cache --delete >"$work/out" 2>"$work/err" || fail "gc failed"
fetch single --offline
[ "$code" -eq 0 ] || fail "gc took files of a set"
fetch single --remove
"$ESPALIER" gc --store "$work/results" --cache --delete >"$work/out" 2>"$work/err" || fail "gc failed"
fetch single --offline
[ "$code" -eq 4 ] || fail "gc kept the files of a removed set"

# The token goes to the hub and nowhere else, and is never printed or stored.
start_bad "$SOURCE/datasets/samples/llama-6m/config.json"
cat >>"$work/registry.yaml" <<TEXT
  secret: {kind: model, title: t, licence: none, hub: {repository: lab/secret, revision: $commit}, files: [config.json]}
TEXT
printf 'test-token-1234\n' >"$work/token"
fetch secret --hub "$bad/seen-token" --token-file "$work/token" --verbose
[ "$code" -eq 0 ] || fail "with the token: exit code $code"
forget
HF_TOKEN=test-token-1234
export HF_TOKEN
fetch secret --hub "$bad/seen-token"
[ "$code" -eq 0 ] || fail "with the token of the environment: exit code $code"
entry elsewhere "$bad/seen-token"
expect_code 4 'HTTP 401' elsewhere
unset HF_TOKEN
forget
expect_code 4 'may need a token' secret --hub "$bad/seen-token"
# Large files are redirected; the hub's header says what must arrive, whoever sends it.
forget
fetch secret --hub "$bad/hub-moved"
[ "$code" -eq 0 ] || fail "redirected by the hub: exit code $code"
grep -q '"check": "hub"' "$folder/set.json" || fail "not checked against the hub's hash"
forget
expect_code 4 'has sha256' secret --hub "$bad/hub-lies"
printf 'two words\n' >"$work/token"
expect_code 2 'does not hold a token' secret --hub "$bad/seen-token" --token-file "$work/token"
! grep -r -q 'test-token-1234' "$work/cache" "$work/results" "$work/err" "$work/out" 2>/dev/null ||
    fail "the token was written somewhere"
echo "apache: all cases passed"
