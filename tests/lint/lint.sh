#!/bin/sh
# Checks that need no build: layer table, self-contained headers, unique file names, banned functions,
# file length, format. Prints every finding; exit 1 when there is one.
#
# LINT_ROOT: another tree to check (the self-test uses it).
set -u
table=$(cd "$(dirname "$0")" && pwd)/layers.txt
cd "${LINT_ROOT:-$(dirname "$0")/../..}" || exit 1
sources="pipeline stages kernels eval datasets search"
findings=$(mktemp)
trap 'rm -f "$findings"' EXIT
report() { printf '%s\n' "$*" >>"$findings"; }
files() { find $sources -name "$1" 2>/dev/null | sort; }

# 1. Layers. A file belongs to the longest table entry that is a prefix of its path. An include is
#    resolved against the include roots; one that is not found there is a system header.
check_layers() {
    files '*.[ch]' | while read -r file; do
        grep -nE '^ *# *include *"' "$file" | sed -E 's/^([0-9]+):.*"(.*)".*/\1 \2/' |
            while read -r line header; do
                for root in "$(dirname "$file")" pipeline . kernels/include; do
                    if [ -f "$root/$header" ]; then
                        printf '%s %s %s\n' "$file" "$line" "$(printf '%s' "$root/$header" | sed 's|^\./||')"
                        break
                    fi
                done
            done
    done | awk '
        FNR == NR {
            if ($0 ~ /^#/ || NF == 0) { next }
            count++; entry[count] = $1
            for (i = 2; i <= NF; i++) { allowed[$1, i - 1] = $i }
            allowed_count[$1] = NF - 1
            next
        }
        function owner(path,    i, best) {
            best = ""
            for (i = 1; i <= count; i++) {
                if (index(path "/", entry[i] "/") == 1 && length(entry[i]) > length(best)) { best = entry[i] }
            }
            return best
        }
        {
            from = owner($1); to = owner($3)
            if (from == "") { print $1 ":" $2 ": no row in tests/lint/layers.txt for this folder"; next }
            if (from == to) { next }
            for (i = 1; i <= allowed_count[from]; i++) {
                if ($3 == allowed[from, i] || index($3, allowed[from, i] "/") == 1) { next }
            }
            print $1 ":" $2 ": layer rule: " from " may not include " $3
        }' "$table" - >>"$findings"
}

# 2. Every header compiles alone; those of kernels/include also as C++.
check_headers() {
    flags="-D_GNU_SOURCE -Ipipeline -I. -Ikernels/include -I/usr/include/hdf5/serial -fsyntax-only -Wall -Wextra -Werror"
    flags="$flags $(pkg-config --cflags-only-I hdf5-serial hdf5 2>/dev/null || true)"
    files '*.h' | while read -r header; do
        # shellcheck disable=SC2086
        printf '#include "%s"\n' "$header" | ${CC:-cc} -std=c11 $flags -x c - 2>/dev/null ||
            report "$header:1: does not compile alone"
    done
    files '*.h' | grep '^kernels/include' | while read -r header; do
        # shellcheck disable=SC2086
        printf '#include "%s"\n' "$header" | ${CXX:-c++} -std=c++17 $flags -x c++ - 2>/dev/null ||
            report "$header:1: does not compile as C++"
    done
}

# 3. File names are unique, so that one name means one file. stage.c is the one fixed name a stage has.
check_names() {
    find $sources tests -name '*.[ch]' -o -name '*.cu' 2>/dev/null | sed 's|.*/||' | sort | uniq -d |
        grep -v -x 'stage.c' | while read -r name; do
        where=$(find $sources tests -name "$name" | sort | tr '\n' ' ')
        # A kernel has the same file name in each backend folder.
        [ "$(printf '%s' "$where" | tr ' ' '\n' | grep -vc -E '^kernels/(ref|cpu|cuda)/|^$')" -eq 0 ] ||
            report "$name: the name is used more than once: $where"
    done
}

# 4. Banned functions, and words that belong to one layer only.
check_banned() {
    banned='(^|[^_a-zA-Z0-9.>"])(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof|strtok|alloca|tmpnam|mktemp|system|popen|rand|srand|localtime|gmtime|ctime|asctime|strerror_l|setlocale) *\('
    files '*.[ch]' | xargs grep -nE "$banned" | sed 's/$/   <- banned function/' >>"$findings"
    files '*.[ch]' | grep -v -e '^pipeline/cli/' -e '^pipeline/main.c' |
        xargs grep -nE '(^|[^_a-zA-Z0-9])(exit|abort|printf|puts|putchar|perror) *\(' |
        grep -vE '_exit\(|__attribute__|^\S*: *\*|/\*' |
        sed 's/$/   <- only pipeline\/cli and main.c print or exit/' >>"$findings"
    files '*.[ch]' | xargs grep -nE 'TODO|FIXME|XXX|#if 0' | grep -vE 'TODO\(#[0-9]+\)' |
        sed 's/$/   <- needs an issue number, or go/' >>"$findings"
}

# 5. One idea per file.
check_length() {
    files '*.[ch]' | xargs wc -l | awk '$2 != "total" && $1 > 600 {
        print $2 ":1: " $1 " lines; split it (limit 600)" }' >>"$findings"
}

# 6. Format, with the version the configuration is written for.
check_format() {
    tool=$(command -v clang-format-14 || command -v clang-format || true)
    case $("${tool:-false}" --version 2>/dev/null) in
    *"version 14."*)
        find $sources tests -name '*.[ch]' -o -name '*.cu' | sort | while read -r file; do
            "$tool" "$file" | cmp -s - "$file" || report "$file:1: run clang-format on it"
        done
        ;;
    *) echo "lint: clang-format 14 is not here: format not checked" >&2 ;;
    esac
}

check_layers
check_headers
check_names
check_banned
check_length
check_format

if [ -s "$findings" ]; then
    cat "$findings"
    echo "lint: $(wc -l <"$findings") findings" >&2
    exit 1
fi
echo "lint: $(files '*.[ch]' | wc -l) files, no findings"
