# Another live process holds the key: the run says who and waits. It is stopped here after a while.
. "$SRC/tests/cli/common.inc"
write_prune_job
key=$(espalier plan job.yaml --json | json_get .stages.0.key) || exit 98
mkdir -p results/partial
start=$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20)
boot=$(cat /proc/sys/kernel/random/boot_id)
echo "espl-lock-1 $(hostname) $boot $$ $start 2026-05-12T10:04:11Z" >"results/partial/$key.lock"
timeout --preserve-status -s INT 2 espalier run job.yaml --progress=lines >out 2>err
code=$?
sed -E "s/^[0-9:]{8} /TIME /; s/pid $$/PID/; s/$(hostname)/HOST/g; s/[0-9]{8}-[0-9]{6}-small-[0-9a-f]{4}/RUN/" err >&2
test -e "results/partial/$key.lock" || echo "the lock of the other process is gone"
test -e results/by-name/small/dense.h5 && echo "the stage ran although its key was locked"
exit $code
