# A pruned model, whose weights lie in the results folder; what is quantised already is refused.
. "$SRC/tests/cli/common.inc"
write_prune_job
cat >>job.yaml <<END
  - id: calib
    use: tokens
    with:
      tokenizer: $SRC/datasets/samples/llama-6m
      text: $SRC/datasets/samples/novels-test-sample.txt.xz
      samples: 2
      sequence_length: 64
  - id: quant
    use: atom-quantize
    in: {model: prune, tokens: calib}
    with: {method: rtn}
END
run_quietly
espalier bench quantize small:prune --windows=2 --length=32
espalier bench quantize small:quant --windows=2 --length=32
echo "exit $?"
