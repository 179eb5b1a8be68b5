# 7: ran, but a threshold failed; the last line on stderr says which.
. "$SRC/tests/cli/common.inc"
write_evaluate_job 'max: 1.0001'
espalier run job.yaml --progress=lines >out 2>err
code=$?
tail -n 1 err | sed -E 's/^[0-9:]{8} /TIME /' >&2
exit $code
