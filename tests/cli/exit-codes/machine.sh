. "$SRC/tests/cli/common.inc"
write_prune_job
espalier plan job.yaml --device cuda:99 >/dev/null 2>&1
