. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
espalier run job.yaml --set prune.pattern=2:4 --quiet --progress=none >/dev/null
set -- $(espalier completion --runs)
espalier report "$2" "$1" -o page.html
grep -o '<h1>.*</h1>' page.html
grep -o '<td class="wide">2:4 (keeps 2 of 4)</td>' page.html
