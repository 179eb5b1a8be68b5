# stdout is data, stderr is talk: the last line on stdout is the folder of the run.
. "$SRC/tests/cli/common.inc"
write_prune_job
espalier run job.yaml >out 2>err
wc -l <out
test -d "$(tail -n 1 out)" && echo folder
test -s err && echo talk
espalier run job.yaml --quiet >out 2>err
test -s err || echo quiet
