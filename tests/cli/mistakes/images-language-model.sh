# Pictures for a language model, and an image model without pictures: both are seen before anything runs.
cat >job.yaml <<END
version: 1
name: small
stages:
  - id: llama
    use: import
    with: {checkpoint: $SRC/datasets/samples/llama-6m}
  - id: vit
    use: import
    with: {checkpoint: $SRC/datasets/samples/deit-fmnist-dense}
  - id: pictures
    use: images
    in: vit
    with: {source: $SRC/datasets/samples/fashion-mnist/t2k-images-idx3-ubyte.gz}
  - id: text
    use: tokens
    with:
      tokenizer: $SRC/datasets/samples/llama-6m
      text: $SRC/datasets/samples/novels-test-sample.txt.xz
  - id: eval-llama
    use: evaluate
    in: {model: llama, images: pictures}
  - id: eval-vit
    use: evaluate
    in: vit
  - id: quant
    use: atom-quantize
    in: {model: vit, tokens: text}
END
espalier plan job.yaml >out
