# A result that lost its tail: named, with the way out; nothing else is touched.
. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
file=$(readlink -f results/by-name/small/prune.h5)
truncate -s 2000 "$file"
cp "$file" damaged.h5
espalier inspect damaged.h5
