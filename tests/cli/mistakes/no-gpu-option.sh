# Mistake 7 on the command line: the option is named, not a line of the file.
. "$SRC/tests/cli/common.inc"
write_prune_job
espalier run job.yaml --device cuda:99
espalier run job.yaml --set device=cuda:98
