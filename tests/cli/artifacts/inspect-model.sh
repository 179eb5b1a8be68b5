. "$SRC/tests/cli/common.inc"
write_prune_job
espalier run job.yaml --set prune.pattern=2:4 --quiet --progress=none >/dev/null || exit 98
espalier inspect small:prune | sed -E 's|store/[0-9a-f]{2}/[0-9a-f]{64}|store/KEY|; s/^when .*/when/; s/[0-9a-f]{64}/HASH/; s/key [0-9a-f]{8}/key KEY/; s/[0-9.]+ KiB   complete/SIZE   complete/'
