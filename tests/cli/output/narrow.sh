# Tables keep within the terminal: COLUMNS stands for it here. The line of needs is no table.
. "$SRC/tests/cli/common.inc"
write_prune_job
COLUMNS=72 espalier plan job.yaml | grep -E 'dense|prune|stage '
COLUMNS=72 espalier plan job.yaml | awk 'length > 72 && !/^needs/ { print "too wide: " $0 }'
COLUMNS=80 espalier stages | awk 'length > 80 { print "too wide: " $0 }'
COLUMNS=60 espalier stages wanda-prune | awk 'length > 60 { print "too wide: " $0 }'
[ "$(COLUMNS=60 espalier stages wanda-prune | tr -s ' \n' '  ')" = \
    "$(espalier stages wanda-prune | tr -s ' \n' '  ')" ] || echo "stage cut, not wrapped"
# What does not fit into the last column goes on in the next line and is not lost.
[ "$(COLUMNS=80 espalier stages | tr -s ' \n' '  ')" = "$(espalier stages | tr -s ' \n' '  ')" ] ||
    echo "cut, not wrapped"
