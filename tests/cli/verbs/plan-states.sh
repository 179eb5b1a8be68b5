. "$SRC/tests/cli/common.inc"
write_prune_job
espalier plan job.yaml | sed -E 's/host .*/host .../'
run_quietly
espalier plan job.yaml | sed -E 's/key [0-9a-f]{8}/key KEY/; s/host .*/host .../'
espalier plan job.yaml --set prune.sparsity=0.6 |
    sed -E 's/key [0-9a-f]{8}/key KEY/; s/host .*/host .../; s/ +~?[0-9.]+ m?s / TIME /'
