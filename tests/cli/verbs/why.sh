. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
espalier why job.yaml prune --set prune.sparsity=0.6 | sed -E 's/key [0-9a-f]{8}[^)]*/key KEY/'
espalier why job.yaml dense | sed -E 's/key [0-9a-f]{8}/key KEY/'
