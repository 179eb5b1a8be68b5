# What masks and encoded codes take, as stored and as other formats; the encoder's own count is the check.
. "$SRC/tests/cli/common.inc"
write_prune_job
append_calibration
cat >>job.yaml <<END
  - id: quant
    use: atom-quantize
    in: {model: prune, tokens: calib}
    with: {method: rtn, reorder: none, activation_bits: 16, kv_bits: 16}
  - id: encode
    use: iebme-encode
    in: {model: quant}
END
run_quietly
espalier inspect small:prune --traffic --device=h200 --tokens=4 | sed -n '/^traffic/,$p'
espalier inspect small:encode --traffic --json >encode.json
json_get .traffic.stored.bytes <encode.json >counted
sed -n 's/.*"encode\.encoded_bytes": *\([0-9.]*\).*/\1/p' results/by-name/small/metrics.json >encoded
cmp counted encoded && [ -s encoded ] && echo 'same bytes'
json_get --keys .traffic <encode.json
json_get --keys .traffic.layers.0 <encode.json
espalier inspect small:calib --traffic
