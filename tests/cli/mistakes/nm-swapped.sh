# N:M means N kept of M: N cannot be larger.
cat >job.yaml <<END
version: 1
name: small
stages:
  - id: dense
    use: import
    with: {checkpoint: $SRC/datasets/samples/llama-6m}
  - id: prune
    use: magnitude-prune
    in: dense
    with: {pattern: "4:2"}
END
espalier plan job.yaml
