# The table of a plan with a blocked stage stays narrow: the error stands above it in full.
. "$SRC/tests/cli/common.inc"
write_prune_job
espalier plan job.yaml --set dense.checkpoint=nothing/here | sed -E 's/ of [0-9.]+ [KMGT]iB free/ of SIZE free/g'
