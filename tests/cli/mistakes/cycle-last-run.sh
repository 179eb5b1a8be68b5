# Mistake 4 in a job that ran before: the help says what the stage took then.
. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
cat >job.yaml <<END
version: 1
name: small
stages:
  - id: dense
    use: import
    with: {checkpoint: $SRC/datasets/samples/llama-6m}
  - id: prune
    use: magnitude-prune
    in: again
  - id: again
    use: magnitude-prune
    in: prune
END
espalier plan job.yaml
