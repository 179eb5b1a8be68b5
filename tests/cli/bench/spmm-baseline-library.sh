# The example of docs/kernels/baselines.md compiles without a warning and is taken; one of another version
# is refused.
if ! command -v cc >/dev/null; then
    echo "no C compiler" >&2
    exit 77
fi
page="$SRC/docs/kernels/baselines.md"
sed -n '/^```c$/,/^```$/p' "$page" | sed '1d;$d' >copy.c
cc -std=gnu11 -Wall -Wextra -Werror -shared -fPIC -I "$SRC" -o copy.so copy.c
sed 's/= ESPL_SPMM_PEER_VERSION/= 99/' copy.c >other.c
cc -std=gnu11 -shared -fPIC -I "$SRC" -o other.so other.c
espalier bench spmm --baseline-library ./other.so 2>&1
echo "exit $?"
sed 's/espl_spmm_peer_get/another_name/' copy.c >nameless.c
cc -std=gnu11 -shared -fPIC -I "$SRC" -o nameless.so nameless.c
espalier bench spmm --baseline-library ./nameless.so 2>&1
echo "exit $?"
# Taken: what is missing then is a device, not the library.
espalier bench spmm --baseline-library ./copy.so --shape 16x16 --tokens 1 --sparsity 0.5 --json >out 2>err
code=$?
if [ $code = 0 ]; then
    grep -c copy-int4 out >/dev/null && echo "taken"
else
    grep -q library err || echo "taken"
fi
