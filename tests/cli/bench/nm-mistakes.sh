# What bench nm refuses before it looks for a device.
. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
for arguments in 'small:prune' 'small:nothing' 'small:prune --kept=2' 'small:prune --set=grid' '--baseline=mkl' \
    '--set=resnet' '--kept=8' '--shared=3 --shape=10x0'; do
    # Two arguments in one word, on purpose.
    # shellcheck disable=SC2086
    espalier bench nm $arguments 2>&1
    echo "exit $?"
done
