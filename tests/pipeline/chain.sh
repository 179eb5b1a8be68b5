# Shared by the chain tests: source it. Needs ESPALIER (program) and SOURCE (source folder).
# shellcheck shell=sh
set -eu
work=$(mktemp -d "${TMPDIR:-/tmp}/espalier-chain.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
export NO_COLOR=1
export OMP_NUM_THREADS=1 # the model is tiny: on a busy machine threads only wait for each other
cd "$SOURCE"

fail() {
    echo "FAILED: $*"
    exit 1
}

# job FILE: the chain with its export folder inside $work.
job() { sed "s|EXPORT_FOLDER|$work/export|" "$SOURCE/tests/pipeline/chain.yaml" >"$1"; }

# run_chain STORE [OPTION...]: talk goes to $work/log.
run_chain() {
    store=$1
    shift
    "$ESPALIER" run "$work/chain.yaml" --store "$store" --progress none "$@" >"$work/out" 2>"$work/log"
}

json_text() { sed -n "s/^ *\"$1\": \"\([^\"]*\)\",*\$/\1/p" | head -n 1; }

# hash_of_link STORE LINK: "stage content-hash", verified against the data.
hash_of_link() {
    "$ESPALIER" inspect "$2" --store "$1" --verify --json >"$work/inspect.json" || fail "$2 does not verify"
    printf '%s %s\n' "$(basename "$2" .h5)" "$(json_text content_sha256 <"$work/inspect.json")"
}

# hashes STORE: that of every stage of the chain.
hashes() {
    for link in "$1"/by-name/chain/*.h5; do
        hash_of_link "$1" "$link"
    done
}

# whole_artifact STORE FILE: whatever is visible under its final name is complete and whole.
whole_artifact() {
    "$ESPALIER" inspect "$2" --store "$1" --verify >/dev/null 2>"$work/inspect.err" ||
        fail "half an artifact is visible: $2: $(cat "$work/inspect.err")"
}
no_half_artifact() {
    for file in "$1"/store/*/*.h5; do
        [ ! -e "$file" ] || whole_artifact "$1" "$file"
    done
}

job "$work/chain.yaml"
# shellcheck disable=SC2034
stages=$(grep -c '^  - id: ' "$work/chain.yaml")
