# Mistake 6 where something can be deleted: the help says how much.
. "$SRC/tests/cli/common.inc"
write_prune_job
mkdir small
probe='mount -t tmpfs -o size=16m none small'
if unshare -m sh -c "$probe" 2>/dev/null; then
    how='unshare -m'
elif unshare -rm sh -c "$probe" 2>/dev/null; then
    how='unshare -rm'
else
    echo "skipped: may not mount a file system here" >&2
    exit 77
fi
$how sh -c "$probe && espalier run job.yaml --store small --quiet --progress=none >/dev/null &&
    rm -r small/by-name small/runs &&
    espalier run job.yaml --store small --set dense.dtype=f32" >out 2>err
code=$?
sed -E 's/, [0-9.]+ MiB free/, SIZE free/' err >&2
exit $code
