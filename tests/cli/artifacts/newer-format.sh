# Written by a later version of the format.
. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
cp -L results/by-name/small/prune.h5 newer.h5
chmod u+w newer.h5
artifact_edit newer.h5 format_version 2 || exit 98
espalier inspect newer.h5
