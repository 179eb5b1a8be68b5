# A reader that has seen enough is no error, and does not stop a run.
. "$SRC/tests/cli/common.inc"
write_prune_job
(espalier stages; echo $? >stages.code) | head -1 | cut -c1-5
(espalier run job.yaml --json --progress=none --quiet; echo $? >run.code) | head -1 >/dev/null
cat stages.code run.code
test -e results/by-name/small/prune.h5 && echo "the run went on"
