# Mistake 7: a device that this machine does not have.
cat >job.yaml <<END
version: 1
name: small
device: cuda:99
stages:
  - id: dense
    use: import
    with: {checkpoint: $SRC/datasets/samples/llama-6m}
END
espalier run job.yaml
