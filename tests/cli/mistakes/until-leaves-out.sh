# A mistake in a stage that --until leaves out is no reason not to run the rest; without --until it is one.
. "$SRC/tests/cli/common.inc"
write_import_job
cat >>job.yaml <<END
  - id: text
    use: tokens
    with:
      tokenizer: $SRC/datasets/samples/llama-6m
      text: missing.txt
  - id: eval
    use: evaluate
    in: {model: dense, tokens: text}
END
espalier run job.yaml --until dense --quiet >run.out || exit 98
espalier status small | grep -c 'left out by --until'
espalier run job.yaml --quiet 2>&1 | head -1
