# One flipped byte in the data: found by --verify, exit code 4.
. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
cp -L results/by-name/small/dense.h5 damaged.h5
chmod u+w damaged.h5
size=$(stat -c %s damaged.h5)
printf '\377' | dd of=damaged.h5 bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
espalier inspect damaged.h5 --verify
