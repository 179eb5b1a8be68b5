# A file in another results folder: its inputs and the model that it masks lie beside it.
. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
mv results elsewhere
espalier inspect elsewhere/by-name/small/prune.h5 | sed -nE '/^inputs/p; /^  total/p'
cp -r elsewhere third
espalier diff elsewhere/by-name/small/prune.h5 third/by-name/small/prune.h5 | tail -1
