# The matrices of a model on the CPU, and what is refused before a device is looked for.
. "$SRC/tests/cli/common.inc"
write_import_job
append_calibration
cat >>job.yaml <<END
  - {id: quant, use: atom-quantize, in: {model: dense, tokens: calib}, with: {method: rtn}}
  - {id: bytes, use: atom-quantize, in: {model: dense, tokens: calib}, with: {method: rtn, weight_bits: 8, activation_bits: 8}}
END
run_quietly
espalier bench spmm small:quant --backend cpu --threads 1 --tokens 2 --form dense --baseline none --repeats 3 --json >out.json
echo "exit $?"
for path in .cases.0.module .cases.0.modules .cases.0.stored_as .cases.0.rows .cases.0.cols .cases.0.code_bits \
    .cases.0.results.0.name .cases.0.results.0.kind .cases.1.module .summary.0.sparsity; do
    json_get $path <out.json
done
espalier bench spmm small:quant --backend cpu --threads 1 --tokens 2 --form dense --baseline none --repeats 3 |
    cut -c -49 | sed -n 3,7p
for arguments in small:bytes small:dense small:calib nothing.h5 'small:quant --shape=16x16' 'small:quant --bits=2' \
    'small:quant --group=64' 'small:quant --ablation' 'small:quant small:bytes'; do
    # Two arguments in one word, on purpose.
    # shellcheck disable=SC2086
    espalier bench spmm $arguments 2>&1 | sed 's/[0-9a-f]\{64\}/KEY/g; s/store\/[0-9a-f][0-9a-f]/store\/KE/'
done
