# Mistake 6: the results do not fit. The store lies on a file system of 4 MiB of its own.
. "$SRC/tests/cli/common.inc"
write_prune_job
mkdir small
probe='mount -t tmpfs -o size=4m none small'
if unshare -m sh -c "$probe" 2>/dev/null; then
    how='unshare -m'
elif unshare -rm sh -c "$probe" 2>/dev/null; then
    how='unshare -rm'
else
    echo "skipped: may not mount a file system here" >&2
    exit 77
fi
$how sh -c "$probe && espalier run job.yaml --store small"
