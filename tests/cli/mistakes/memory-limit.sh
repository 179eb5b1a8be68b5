# A limit of the job that a stage does not keep: the line of the limit.
. "$SRC/tests/cli/common.inc"
write_prune_job
cat >>job.yaml <<END
limits:
  host_memory: 1MiB
END
espalier run job.yaml
