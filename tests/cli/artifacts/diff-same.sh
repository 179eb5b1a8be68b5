. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
espalier diff small:prune results/by-name/small/prune.h5 | sed -E 's|store/[0-9a-f]{2}/[0-9a-f]{64}|store/KEY|'
espalier diff small:prune small:prune >/dev/null
