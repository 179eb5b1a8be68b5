# results/by-name/<job>/metrics.json: one flat object for scripts.
. "$SRC/tests/cli/common.inc"
write_evaluate_job 'max: 100'
run_quietly
json_get --keys . <results/by-name/small/metrics.json
# It ends with a newline, and the run says where it is.
tail -c 1 results/by-name/small/metrics.json | od -An -c | tr -d ' '
espalier run job.yaml 2>&1 >run.out | grep metrics.json
