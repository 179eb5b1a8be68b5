# A pruned model, whose weights lie in the results folder; what is quantised already is refused.
. "$SRC/tests/cli/common.inc"
write_prune_job
append_calibration
cat >>job.yaml <<END
  - id: quant
    use: atom-quantize
    in: {model: prune, tokens: calib}
    with: {method: rtn}
END
run_quietly
espalier bench quantize small:prune --windows=2 --length=32
espalier bench quantize small:quant --windows=2 --length=32
echo "exit $?"
