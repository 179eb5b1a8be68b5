# A run record that is damaged is named and passed over.
. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
run_quietly
newest=$(ls -d results/runs/* | tail -n 1)
echo '{' >"$newest/run.json"
id_off() { sed -E 's/[0-9]{8}-[0-9]{6}-small-[0-9a-f]{4}/RUN/g'; }
{
    espalier status | head -n 1 | sed -E 's/started .*/started .../'
    espalier report small --format=csv --output=report.csv
    test -s report.csv && echo written
    espalier gc
    espalier status "$(basename "$newest")"
} 2>&1 | id_off
