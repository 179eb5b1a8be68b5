# 6: plan --check with work pending, 0 without.
. "$SRC/tests/cli/common.inc"
write_prune_job
espalier plan job.yaml --check >/dev/null
echo "before: $?"
run_quietly
espalier plan job.yaml --check >/dev/null
echo "after: $?"
espalier plan job.yaml --set prune.sparsity=0.6 --check >/dev/null
