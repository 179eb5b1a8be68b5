# Mistake 5: an input of the wrong kind.
cat >job.yaml <<END
version: 1
name: small
stages:
  - id: dense
    use: import
    with: {checkpoint: $SRC/datasets/samples/llama-6m}
  - id: eval
    use: evaluate
    in:
      model: dense
      tokens: dense
END
espalier plan job.yaml
