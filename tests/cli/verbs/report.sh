# The page goes beside the record; the other formats to standard output.
. "$SRC/tests/cli/common.inc"
write_evaluate_job 'max: 100'
run_quietly
espalier report | sed -E 's/[0-9]{8}-[0-9]{6}-small-[0-9a-f]{4}/RUN/'
espalier report small --output page.html
head -c 15 page.html && echo
espalier report small --format=csv | cut -d, -f2-5 | grep eval
espalier report small --format=md | grep -c '^## '
espalier report nothing
