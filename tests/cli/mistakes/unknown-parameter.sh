# Architecture: mistake 1, unknown key.
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
    with:
      patern: "2:4"
END
espalier plan job.yaml
