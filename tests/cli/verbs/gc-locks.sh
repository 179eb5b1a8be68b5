# Locks of owners that are gone and guards of interrupted takeovers go with --delete.
. "$SRC/tests/cli/common.inc"
write_prune_job
run_quietly
key=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
: >results/partial/$key.lock.guard
echo "espl-lock-1 $(hostname) 00000000-0000-0000-0000-000000000000 1 1 2026-05-12T10:04:11Z" >results/partial/$key.lock
espalier gc | sed -E 's/ +[0-9]+ B/ SIZE/'
ls results/partial | wc -l
espalier gc --delete | tail -1 | sed -E 's/[0-9]+ B/SIZE/'
ls results/partial | wc -l
