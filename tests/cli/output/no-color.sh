# NO_COLOR and a stream that is no terminal give no escape sequences; --color=always does.
. "$SRC/tests/cli/common.inc"
write_prune_job
escape=$(printf '\033')
NO_COLOR=1 espalier plan job.yaml | grep -c "$escape"
espalier plan job.yaml | grep -c "$escape"
espalier plan job.yaml --color=never | grep -c "$escape"
espalier plan job.yaml --color=always | grep -q "$escape" && echo coloured
NO_COLOR=1 espalier plan job.yaml --color=always | grep -q "$escape" && echo "coloured, as asked"
espalier plan nothing.yaml --color=always 2>&1 | grep -q "$escape" && echo "error coloured"
espalier plan nothing.yaml 2>&1 | grep -c "$escape"
true
