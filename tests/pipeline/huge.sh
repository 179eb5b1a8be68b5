#!/bin/sh
# Checkpoints that do not fit in memory.
#   huge.sh plan           a 70B LLaMA whose weights are holes of its files: plan names the right memory,
#                          time, disk space and parameters
#   huge.sh run            a 16 GB checkpoint (Llama 3 8B in bf16) through import by reference,
#                          magnitude-prune and iebme-encode: peak resident memory of each stage process,
#                          mapped pages included, under 1.2 GB; throughput beside the disk's own.
#                          What is encoded are codes, rounded to nearest by atom-quantize; that stage
#                          runs the model and so holds its embedding and head in float: its memory is
#                          printed, and not held to the limit. It also takes most of the time.
. "$(dirname "$0")/chain.sh"
limit=1200000000

# number NAME FILE: a number of a JSON text that is spread over lines.
number() { sed -n "s/^ *\"$1\": \([0-9.]*\),*\$/\1/p" "$2" | head -n 1; }

write_job() { # storage
    cat >"$work/huge.yaml" <<TEXT
version: 1
name: huge
stages:
  - {id: dense, use: import, with: {checkpoint: $work/checkpoint, storage: $1}}
  - {id: pruned, use: magnitude-prune, in: dense, with: {sparsity: 0.5}}
TEXT
}

# From one window of 16 tokens: rounding looks at the weights alone.
write_encode_job() {
    head -c 256 /dev/zero >"$work/ids"
    write_job reference
    cat >>"$work/huge.yaml" <<TEXT
  - {id: window, use: tokens, with: {ids: $work/ids, samples: 1, sequence_length: 16}}
  - id: codes
    use: atom-quantize
    in: {model: pruned, tokens: window}
    with: {method: rtn, reorder: none, activation_bits: 16, kv_bits: 16, max_perplexity_ratio: 0}
  - {id: encoded, use: iebme-encode, in: codes}
TEXT
}

# The times of a small model on this machine, scaled by the work, give those of the large one.
run_small() {
    "$ESPALIER" synth "$work/checkpoint" --shape llama-2-70b --layers 1 --hidden 1024 --heads 16 \
        --kv-heads 4 --ffn 4096 >/dev/null 2>"$work/log" || fail "$(cat "$work/log")"
    write_job reference
    "$ESPALIER" run "$work/huge.yaml" --store "$work/store" --progress none >/dev/null \
        2>"$work/log" || fail "$(cat "$work/log")"
    rm -rf "$work/checkpoint"
}

plan_70b() {
    run_small
    "$ESPALIER" synth "$work/checkpoint" --shape llama-2-70b --sparse --shard-size 10GB \
        >/dev/null 2>"$work/log" || fail "$(cat "$work/log")"
    [ "$(du -sk "$work/checkpoint" | cut -f 1)" -lt 100000 ] || fail "the files are not sparse"
    write_job reference
    "$ESPALIER" plan "$work/huge.yaml" --store "$work/store" --json >"$work/plan" 2>"$work/log" ||
        fail "$(cat "$work/log")"
    # 68,976,648,192 parameters: 2 x 32000 x 8192 outside the blocks, 80 x (2 x 8192^2 + 2 x 8192 x 1024
    # + 3 x 8192 x 28672 + 2 x 8192) in them, and the last norm.
    grep -q '68976.6 M parameters' "$work/plan" || fail "other parameters: $(cat "$work/plan")"
    # A bit for each of the 80 x (2 x 8192^2 + 2 x 8192 x 1024 + 3 x 8192 x 28672) weights that are pruned.
    masks=$((80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672) / 8))
    outputs=$(sed -n 's/^ *"output_bytes": \([0-9]*\),*$/\1/p' "$work/plan" | tail -n 1)
    [ "$outputs" -ge "$masks" ] && [ "$outputs" -lt $((masks + masks / 50)) ] ||
        fail "pruned takes $masks bytes of masks, the plan says $outputs"
    sed -n 's/^ *"\(host_bytes\|output_bytes\)": \([0-9]*\),*$/\1 \2/p' "$work/plan"
    sed -n 's/^ *"seconds": \([0-9.a-z]*\),*$/seconds \1/p' "$work/plan"
    for seconds in $(sed -n 's/^ *"seconds": \([0-9a-z]*\).*$/\1/p' "$work/plan"); do
        # 138 GB are read in each stage: no machine does that in a few seconds.
        [ "$seconds" != null ] && [ "$seconds" -gt 5 ] || fail "a time of $seconds s is planned"
    done
    for memory in $(sed -n 's/^ *"host_bytes": \([0-9]*\),*$/\1/p' "$work/plan"); do
        [ "$memory" -lt $limit ] || fail "a stage is planned with $memory bytes of memory"
    done
}

# Rates of the disk in MB/s, past the page cache where the file system allows it.
measure_disk() {
    dd if=/dev/zero of="$work/dd" bs=4M count=256 oflag=direct conv=fsync 2>"$work/dd.log" ||
        dd if=/dev/zero of="$work/dd" bs=4M count=256 conv=fsync 2>"$work/dd.log"
    printf 'disk: writes %s, ' "$(sed -n 's/.*, //p' "$work/dd.log")"
    dd if="$work/dd" of=/dev/null bs=4M iflag=direct 2>"$work/dd.log" ||
        dd if="$work/dd" of=/dev/null bs=4M 2>"$work/dd.log"
    printf 'reads %s\n' "$(sed -n 's/.*, //p' "$work/dd.log")"
    rm -f "$work/dd"
}

run_16gb() {
    available=$(df -k "$work" | awk 'END { print $4 }')
    if [ "$available" -lt 36000000 ]; then
        echo "SKIPPED: needs 36 GB in $work" >&2
        exit 77
    fi
    measure_disk
    "$ESPALIER" synth "$work/checkpoint" --shape llama-3-8b --shard-size 5GB >/dev/null \
        2>"$work/log" || fail "$(cat "$work/log")"
    bytes=$(du -sb "$work/checkpoint" | cut -f 1)
    [ "$bytes" -gt 16000000000 ] || fail "the checkpoint has $bytes bytes only"
    write_encode_job
    "$ESPALIER" run "$work/huge.yaml" --store "$work/store" --progress none 2>"$work/log" \
        >"$work/out" || fail "$(cat "$work/log")"
    bad=0
    for stage in dense pruned codes encoded; do
        side=$(readlink -f "$work/store/by-name/huge/$stage.h5" | sed 's/h5$/json/')
        peak=$(number peak_rss_bytes "$side")
        seconds=$(number seconds "$side")
        awk -v name="$stage" -v peak="$peak" -v seconds="$seconds" -v bytes="$bytes" 'BEGIN {
            printf "%-7s peak RSS %4.0f MB, %6.1f s, %5.0f MB/s\n", name, peak / 1e6, seconds,
                   bytes / seconds / 1e6 }'
        [ $stage = codes ] || [ "$peak" -lt $limit ] || bad=1
    done
    [ $bad -eq 0 ] || fail "a stage needed more than $((limit / 1000000)) MB"
}

case $1 in
plan) plan_70b ;;
run) run_16gb ;;
*) fail "huge.sh plan|run" ;;
esac
