. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
espalier inspect small:prun
espalier inspect smal:prune
espalier inspect small:xyz
