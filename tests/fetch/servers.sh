# Common part of the fetch tests: . "$(dirname "$0")/servers.sh"
# A work folder, a test authority, Apache with TLS on a free port of 127.0.0.1, a server that
# misbehaves, and a registry that names their files. Nothing leaves this machine.
#
# ESPALIER: the program; BAD_SERVER: tests/fetch/bad_server.
set -eu
apache=$(command -v apache2 || command -v /usr/sbin/apache2 || true)
if [ -z "$apache" ]; then
    echo "SKIPPED: no Apache here: apt-get install apache2-bin" >&2
    exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/espl-fetch-XXXXXX")
chmod 755 "$work" # Apache may run as nobody
apache_pid=
bad_pid=
clean_up() {
    [ -z "$apache_pid" ] || kill "$apache_pid" 2>/dev/null || true
    [ -z "$bad_pid" ] || kill "$bad_pid" 2>/dev/null || true
    [ -z "$apache_pid" ] || wait "$apache_pid" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

fail() {
    echo "FAIL: $*" >&2
    [ ! -s "$work/err" ] || sed 's/^/    stderr: /' "$work/err" >&2
    [ ! -s "$work/access.log" ] || sed 's/^/    server: /' "$work/access.log" >&2
    exit 1
}
# wait_for WHAT COMMAND...: until it succeeds. A minute is more than the busiest machine needs.
wait_for() {
    awaited=$1
    shift
    for _ in $(seq 600); do
        ! "$@" || return 0
        sleep 0.1
    done
    fail "waited in vain for $awaited"
}

# Nothing of the user's settings counts.
unset HF_TOKEN HF_ENDPOINT ESPALIER_HUB ESPALIER_HUB_TOKEN ESPALIER_HUB_TOKEN_FILE ESPALIER_MIRROR \
    https_proxy http_proxy HTTPS_PROXY HTTP_PROXY all_proxy ALL_PROXY no_proxy NO_PROXY \
    SSL_CERT_FILE 2>/dev/null || true
export HOME="$work/home" ESPALIER_CACHE="$work/cache" SSL_CERT_FILE="$work/tls/ca.pem" LC_ALL=C

# The authority and the server's certificate, for this run alone.
mkdir -p "$work/tls" "$work/www" "$work/home"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
    -subj "/CN=espalier test authority" -keyout "$work/tls/ca.key" -out "$work/tls/ca.pem" 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=localhost" \
    -keyout "$work/tls/server.key" -out "$work/tls/server.csr" 2>/dev/null
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >"$work/tls/ext"
openssl x509 -req -in "$work/tls/server.csr" -CA "$work/tls/ca.pem" -CAkey "$work/tls/ca.key" \
    -CAcreateserial -days 2 -extfile "$work/tls/ext" -out "$work/tls/server.pem" 2>/dev/null
chmod 644 "$work"/tls/*

# make_file NAME BYTES: content that differs everywhere.
make_file() {
    openssl enc -aes-128-ctr -K 00112233445566778899aabbccddeeff -iv "$(printf '%032d' "$2")" \
        -in /dev/zero 2>/dev/null | head -c "$2" >"$1"
}
hash_of() { sha256sum "$1" | cut -d ' ' -f 1; }
# serve_original BYTES: a file that Apache serves as /data; its path in $original, its hash in $hash.
serve_original() {
    start_apache
    original=$work/www/data
    make_file "$original" "$1"
    hash=$(hash_of "$original")
}
# serve_archive NAME OPTIONS: $original as the member "inner" of an archive (tar OPTIONS).
serve_archive() {
    mkdir "$work/tree"
    cp "$original" "$work/tree/inner"
    tar -C "$work/tree" "$2" "$work/www/$1" inner
}

apache_started_or_ended() { [ -s "$work/apache.pid" ] || ! kill -0 "$apache_pid" 2>/dev/null; }
start_apache() {
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        port=$((20000 + ($$ * 7 + attempt * 131) % 20000))
        plain_port=$((port + 1))
        cat >"$work/apache.conf" <<TEXT
ServerRoot $work
ServerName localhost
PidFile $work/apache.pid
ErrorLog $work/apache.log
DocumentRoot $work/www
$(for module in mpm_event authz_core alias ssl env setenvif ratelimit filter headers; do
    echo "LoadModule ${module}_module /usr/lib/apache2/modules/mod_$module.so"
done)
User nobody
Group nogroup
Listen 127.0.0.1:$port https
Listen 127.0.0.1:$plain_port http
SSLSessionCache none
LogFormat "%m %U %>s %B %{Range}i" short
CustomLog $work/access.log short
<Directory $work/www>
  Require all granted
  Options FollowSymLinks
</Directory>
<Location /slow>
  SetOutputFilter RATE_LIMIT
  SetEnv rate-limit 20000
</Location>
Alias /slow $work/www
<Location /crawl>
  SetOutputFilter RATE_LIMIT
  SetEnv rate-limit 400
</Location>
Alias /crawl $work/www
Redirect /moved /
<LocationMatch "/resolve/main/">
  Header always set X-Repo-Commit 0123456789abcdef0123456789abcdef01234567
</LocationMatch>
Redirect /down http://127.0.0.1:$plain_port
Redirect /round /round
<VirtualHost 127.0.0.1:$port>
  SSLEngine on
  SSLCertificateFile $work/tls/server.pem
  SSLCertificateKeyFile $work/tls/server.key
</VirtualHost>
TEXT
        : >"$work/access.log"
        "$apache" -f "$work/apache.conf" -DFOREGROUND 2>"$work/apache.err" &
        apache_pid=$!
        wait_for "Apache" apache_started_or_ended
        if [ -s "$work/apache.pid" ]; then
            https=https://localhost:$port
            return
        fi
        wait "$apache_pid" 2>/dev/null || true
        apache_pid=
    done
    fail "Apache does not start: $(cat "$work/apache.err" "$work/apache.log" 2>/dev/null)"
}

# start_bad FILE: the server that misbehaves; $bad is its address.
start_bad() {
    rm -f "$work/bad.port"
    "$BAD_SERVER" "$1" "$work/bad.port" &
    bad_pid=$!
    wait_for "the misbehaving server" test -s "$work/bad.port"
    bad=http://127.0.0.1:$(cat "$work/bad.port")
}

begin_registry() { printf 'version: 1\nentries:\n' >"$work/registry.yaml"; }

# entry NAME URL [FIELD...]: an entry with one file "data"; fields go to the file.
entry() {
    {
        printf '  %s:\n    {kind: text, title: test, licence: none,\n' "$1"
        printf '     files: [{name: data, url: "%s"' "$2"
        shift 2
        for field in "$@"; do printf ', %s' "$field"; done
        printf '}]}\n'
    } >>"$work/registry.yaml"
}

# fetch NAME [OPTION...]: exit code in $code, folder in $folder; messages in $work/err.
fetch() {
    code=0
    folder=$("$ESPALIER" fetch "$@" --registry "$work/registry.yaml" \
        --progress none --retry-delay 20ms 2>"$work/err") || code=$?
}
# A killed program's espalier-fetch may live a moment longer and write into what is being removed.
forget() { wait_for "the removal of the cache" rm -rf "$work/cache" 2>/dev/null; }
says() { grep -q -e "$1" "$work/err" || fail "${2:-the message} does not say '$1'"; }
# Apache writes a line after its answer has left, so a fetch can be over before its lines are there.
# Waits for a line that matches; logged_no_more waits until none has come for a while.
logged() { wait_for "'$1' in the server's log" grep -q -e "$1" "$work/access.log"; }
logged_no_more() {
    before=-1
    while lines=$(wc -l <"$work/access.log") && [ "$lines" -ne "$before" ]; do
        before=$lines
        sleep 1
    done
}
fresh_log() {
    logged_no_more
    : >"$work/access.log"
}
# Nothing is visible that is not whole: every blob has the hash it is named by.
no_half_blob() {
    [ -d "$work/cache/blobs" ] || return 0
    find "$work/cache/blobs" -type f | while read -r blob; do
        [ "$(hash_of "$blob")" = "$(basename "$blob")" ] || echo "$blob"
    done >"$work/half"
    [ ! -s "$work/half" ] || fail "half-written: $(cat "$work/half")"
}
# expect_good NAME [OPTION...]: fetched, and equal to $original.
expect_good() {
    fetch "$@"
    [ "$code" -eq 0 ] || fail "$1: exit code $code"
    cmp -s "$folder/data" "$original" || fail "$1: other content"
    no_half_blob
}
# expect_code CODE TEXT NAME [OPTION...]: refused so, and nothing visible.
expect_code() {
    wanted=$1
    text=$2
    shift 2
    fetch "$@"
    [ "$code" -eq "$wanted" ] || fail "$1: exit code $code instead of $wanted"
    says "$text" "$1"
    [ ! -e "$work/cache/sets/$1" ] || fail "$1: a set was published"
    no_half_blob
}
