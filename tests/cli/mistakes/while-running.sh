# An error that a stage finds while it runs: its place in the job and the stage are named.
cat >job.yaml <<END
version: 1
name: small
stages:
  - id: dense
    use: import
    with: {checkpoint: $SRC/datasets/samples/llama-6m}
  - id: calib
    use: tokens
    with:
      tokenizer: $SRC/datasets/samples/llama-6m
      text: $SRC/datasets/samples/novels-calib-sample.txt.xz
      samples: 2
      sequence_length: 32
  - id: prune
    use: wanda-prune
    in: {model: dense, tokens: calib}
    with:
      sparsity: 0.95
      last_layer: 0
      max_perplexity_ratio: 1.001
END
espalier run job.yaml --progress=none --quiet >out 2>err
code=$?
sed -n '/^job.yaml/s/perplexity on.*/perplexity .../p; /^ /p; /^note/p' err >&2
exit $code
