# Mistake 2: a text where a number belongs.
cat >job.yaml <<END
version: 1
name: small
stages:
  - id: calib
    use: tokens
    with:
      tokenizer: $SRC/datasets/samples/llama-6m
      text: $SRC/datasets/samples/novels-calib-sample.txt.xz
      samples: 4
      sequence_length: 128 tokens
END
espalier plan job.yaml
