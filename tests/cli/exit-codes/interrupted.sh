# 130 after SIGINT; the same command continues and ends well.
. "$SRC/tests/cli/common.inc"
write_evaluate_job 'min: 0'
sed -i 's/windows: 2/windows: 0/' job.yaml
timeout --preserve-status -s INT 0.7 espalier run job.yaml --progress=none >out 2>err
code=$?
grep -q interrupted err || { cat err; exit 97; }
echo "status: $(espalier status small --json | json_get .run.status)"
espalier run job.yaml --quiet --progress=none --set eval.windows=2 >/dev/null 2>&1
echo "again: $?"
exit $code
