. "$SRC/tests/cli/common.inc"
write_prune_job
espalier plan job.yaml --set prnue.sparsity=0.6
