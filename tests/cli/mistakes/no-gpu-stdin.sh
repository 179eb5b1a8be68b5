# Mistake 7 in a job from standard input: the line is shown all the same.
. "$SRC/tests/cli/common.inc"
write_prune_job
echo "device: cuda:99" >>job.yaml
espalier run - <job.yaml
