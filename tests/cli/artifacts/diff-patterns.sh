# 2:4 against unstructured: exit code 1, and where they differ.
. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
cp -L results/by-name/small/prune.h5 unstructured.h5
espalier run job.yaml --set prune.pattern=2:4 --quiet --progress=none >/dev/null || exit 98
espalier diff unstructured.h5 small:prune >out
code=$?
sed -E 's|store/[0-9a-f]{2}/[0-9a-f]{64}|store/KEY|; s/(content|key) +[0-9a-f]{16}  [0-9a-f]{16}/\1 ONE OTHER/' out
exit $code
