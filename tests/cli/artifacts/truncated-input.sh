# The same as the input of a stage.
. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
truncate -s 2000 results/by-name/small/dense.h5
espalier run job.yaml --set prune.sparsity=0.25 >out 2>err
code=$?
sed -E 's/^[0-9:]{8} /TIME /; s/[0-9]{8}-[0-9]{6}-small-[0-9a-f]{4}/RUN/' err >&2
exit $code
