# results/by-name/<job>/metrics.json: one flat object for scripts.
. "$SRC/tests/cli/common.inc"
write_evaluate_job 'max: 100'
run_quietly
json_get --keys . <results/by-name/small/metrics.json
