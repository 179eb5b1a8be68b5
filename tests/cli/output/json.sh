# --json of every verb is JSON with a schema.
. "$SRC/tests/cli/common.inc"
write_evaluate_job 'max: 100'
run_quietly
for words in 'plan job.yaml' 'status small' 'why job.yaml prune' 'inspect small:prune' \
    'inspect small:eval' 'diff small:prune small:prune' 'report small' 'stages' \
    'stages wanda-prune' 'doctor' 'gc' 'database rebuild'; do
    espalier $words --json >out.json 2>err || { echo "$words: exit code $?"; cat err; }
    echo "$words: $(json_get .schema <out.json)"
    test -s err && cat err
done
espalier schema >schema.json
echo "schema: $(json_get '.$schema' <schema.json)"
espalier run job.yaml --json 2>err >lines.json
json_get --lines .type <lines.json | sort -u | tr '\n' ' '
echo
json_get --lines .schema <lines.json | sort -u
