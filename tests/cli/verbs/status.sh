. "$SRC/tests/cli/common.inc"
espalier status && exit 97
write_prune_job
run_quietly
espalier status small | sed -E 's/[0-9]{8}-[0-9]{6}-small-[0-9a-f]{4}/RUN/; s/key [0-9a-f]{8}/key KEY/; s/ +[0-9.]+ m?s / TIME /; s/started .*/started .../'
