. "$SRC/tests/cli/common.inc"
write_prune_job
espalier plan job.yaml --set prune.sparsity=60
