# A closed stream must not give its number to a file of the run; a result that cannot be printed is told.
. "$SRC/tests/cli/common.inc"
write_prune_job
espalier run job.yaml >&- 2>err
echo "code $?"
grep -c 'cannot write to standard output' err
espalier run job.yaml --quiet <&- 2>&- | wc -l
for stage in dense prune; do
    espalier inspect "small:$stage" --verify >/dev/null || echo "$stage is damaged"
done
