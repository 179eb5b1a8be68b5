# Mistake 7 where it matters: what is to measure the GPU does not measure something else instead.
if [ -e /proc/driver/nvidia/version ]; then
    echo "this machine has a GPU" >&2
    exit 77
fi
cat >job.yaml <<END
version: 1
name: small
device: cuda:0
stages:
  - id: dense
    use: import
    with: {checkpoint: $SRC/datasets/samples/llama-6m}
  - id: calib
    use: tokens
    with: {tokenizer: $SRC/datasets/samples/llama-6m, text: $SRC/datasets/samples/novels-calib-sample.txt.xz, samples: 2, sequence_length: 64}
  - {id: quant, use: atom-quantize, in: {model: dense, tokens: calib}}
  - {id: bench, use: deploy-bench, in: quant}
END
espalier run job.yaml
echo "exit $?"
espalier run job.yaml --device auto
echo "exit $?"
sed 's/in: quant}/in: quant, with: {mode: decode}}/' job.yaml >decode.yaml
espalier run decode.yaml
echo "exit $?"
espalier plan job.yaml --device cpu | tail -n 1
espalier plan decode.yaml --device cpu | tail -n 1
