# Groups go together: a union mask over them stores no zeros (both PMR are equal). Filled groups are weights where the
# mask of single weights would have stored zeros.
. "$SRC/tests/cli/common.inc"
write_prune_job
for fill in none union; do
    espalier run job.yaml --set prune.scope=row --set prune.align=2x2 --set prune.fill=$fill --quiet --progress=none \
        >/dev/null || exit 98
    espalier inspect small:prune | grep -E 'align|fill|total'
    espalier inspect small:prune --traffic | grep -E 'all layers|iebme-2x2'
done
