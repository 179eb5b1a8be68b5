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
      targets: ["*.q_proj", "*.fc1"]
END
espalier plan job.yaml >plan.txt
