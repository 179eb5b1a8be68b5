# 0, also when everything was cached.
. "$SRC/tests/cli/common.inc"
write_prune_job
espalier run job.yaml --quiet >/dev/null || exit 98
espalier run job.yaml --quiet >out || exit 97
grep -qx 'results/runs/[0-9]*-[0-9]*-small-[0-9a-f]*' out
