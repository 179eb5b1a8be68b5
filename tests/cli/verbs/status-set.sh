# What a run was told beside its job file.
. "$SRC/tests/cli/common.inc"
write_prune_job
espalier run job.yaml --quiet --progress=none --set prune.sparsity=0.25 >run.out || exit 98
espalier status small | tail -n 1
