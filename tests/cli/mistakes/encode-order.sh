# Stages of the encoding chain in the wrong order, or with what does not fit.
. "$SRC/tests/cli/common.inc"
plan_with() { # list of stages after 'quant'
    write_import_job
    cat >>job.yaml <<END
  - id: calib
    use: tokens
    with: {tokenizer: $SRC/datasets/samples/llama-6m, text: $SRC/datasets/samples/novels-test-sample.txt.xz, samples: 1, sequence_length: 64}
  - id: quant
    use: atom-quantize
    in: {model: dense, tokens: calib}
    with: {weight_bits: ${bits:-4}}
$1
END
    espalier plan job.yaml >/dev/null
    echo "exit $?"
}
plan_with '  - {id: encode, use: iebme-encode, in: dense}'
plan_with '  - {id: encode, use: iebme-encode, in: quant}
  - {id: order, use: row-reorder, in: encode}'
plan_with '  - {id: order, use: row-reorder, in: quant}
  - {id: encode, use: iebme-encode, in: {model: quant, order: order}, with: {areas: 1x4}}'
plan_with '  - {id: order, use: row-reorder, in: quant, with: {rows: 3}}'
plan_with '  - {id: order, use: row-reorder, in: quant, with: {scope: row}}'
plan_with '  - {id: encode, use: iebme-encode, in: quant, with: {areas: 3x2}}'
bits=3
plan_with '  - {id: encode, use: iebme-encode, in: quant}'
