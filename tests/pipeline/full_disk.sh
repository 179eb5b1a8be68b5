#!/bin/sh
# A full disk at every write of the chain (full_disk.sh STEP [STAGE...]: every STEP-th one, in all stages
# or these): the run fails with a clear message and exit code 5, nothing half-made is visible, and the same
# command then completes to the same hash. Stage after stage, with the results before it in the store, so
# that each place costs one stage.
. "$(dirname "$0")/chain.sh"
. "$SOURCE/tests/support/disk_places.sh"
export ESPL_FAIL_UNDER="$work/disk"
mkdir "$work/disk" "$work/before"
sed -i "s|$work/export|$work/disk/export|" "$work/chain.yaml"
store=$work/disk/store
artifacts=store # the folder of the store that is only added to

# The store as it was before the stage: artifacts by link, whatever is written in place by copy.
take_back() {
    rm -rf "$work/disk/store" "$work/disk/export"
    mkdir "$store"
    for entry in "$work/before"/*; do
        [ -e "$entry" ] || continue
        case $(basename "$entry") in
        "$artifacts") cp -al "$entry" "$store" ;;
        *) cp -a "$entry" "$store" ;;
        esac
    done
}
run_stage() { run_chain "$store" --until "$stage"; }

check() { # kind n sticky
    take_back
    if with_full_disk "$@" run_stage; then
        tolerated=$((tolerated + 1)) # a log line or a cache that a run can do without
    else
        refused_clearly $? "$work/log"
    fi
    new_artifacts
    run_stage || fail "$stage, $1 $2: the same command failed afterwards: $(cat "$work/log")"
    hash_of_stage >"$work/found"
    cmp -s "$work/expected" "$work/found" || fail "$stage, $1 $2: another hash"
}
# What the disturbed run left under final names; what was there before is known to be whole.
new_artifacts() {
    for file in "$store/$artifacts"/*/*.h5; do
        [ -e "$file" ] && [ ! -e "$work/before/${file#"$store/"}" ] || continue
        whole_artifact "$store" "$file"
    done
}
hash_of_stage() { hash_of_link "$store" "$store/by-name/chain/$stage.h5"; }

step=$1
shift
tolerated=0
for stage in $(sed -n 's/^  - id: //p' "$work/chain.yaml"); do
    take_back
    with_full_disk space 0 0 run_stage || fail "the undisturbed run failed: $(cat "$work/log")"
    count_places 20
    hash_of_stage >"$work/expected"
    rm -rf "$work/after"
    cp -a "$store" "$work/after"
    case " ${*:-$stage} " in
    *" $stage "*) at_every_place "$step" check ;;
    esac
    rm -rf "$work/before"
    mv "$work/after" "$work/before"
done
some_refused
echo "full disk: $tried of $all_places places tried: $refused runs failed clearly, $tolerated did without; every restart completed with equal hashes"
