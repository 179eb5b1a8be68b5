# Pictures of fetched sets by name: two idx files, one file of a set, a binary file of CIFAR-10.
export ESPALIER_CACHE=cache

# publish NAME FILE...: a set of files that lie here, all of them for use.
publish()
{
    name=$1
    shift
    mkdir -p cache/sets/$name
    files= use=
    for file; do
        hash=$(sha256sum <$file | cut -c 1-64)
        mkdir -p cache/blobs/$(echo $hash | cut -c 1-2)
        cp $file cache/blobs/$(echo $hash | cut -c 1-2)/$hash
        cp $file cache/sets/$name/
        files="$files${files:+,}{\"name\":\"$file\",\"sha256\":\"$hash\",\"size\":$(wc -c <$file)}"
        use="$use${use:+,}\"$file\""
    done
    echo "{\"schema\":\"espalier.set/1\",\"name\":\"$name\",\"use\":[$use],\"files\":[$files]}" \
        >cache/sets/$name/set.json
}
# Three pictures of 2 x 2 with labels; two records of CIFAR-10.
printf '\0\0\10\3\0\0\0\3\0\0\0\2\0\0\0\2abcdefghijkl' >pictures
printf '\0\0\10\1\0\0\0\3\1\0\1' >labels
publish small pictures labels
{ printf '\3'; head -c 3072 /dev/zero; printf '\7'; head -c 3072 /dev/zero; } >batch.bin
publish cifar batch.bin
publish many pictures labels batch.bin

job()
{
    cat >job.yaml <<END
version: 1
name: small
stages:
  - id: pictures
    use: images
    with: $1
END
}
show()
{
    job "$1"
    espalier run job.yaml --quiet --progress=none >run.out || exit 98
    espalier inspect small:pictures --json >info || exit 98
    for name in count height channels classes; do
        sed -n "s/^ *\"$name\": \([0-9]*\),*$/$name \1/p" info | head -n 1
    done
}
show '{source: small}'
show '{source: small/pictures, labels: small/labels, first: 1}'
show '{source: small/pictures}'
show '{source: cifar}'
mkdir -p folder/val/ant folder/val/bee
cp "$SRC/tests/data/images/pictures/colour.png" folder/val/ant/1.png
cp "$SRC/tests/data/images/pictures/colour.png" folder/val/bee/2.png
printf '\357\273\277bee/2.png 4\n' >val.txt # some editors begin so
publish sample val.txt
show '{source: folder, subset: val, list: sample/val.txt, size: 8, channels: 3}'
job '{source: pictures, list: sample}' && espalier plan job.yaml >plan.out
job '{source: folder, list: sample, size: 8, channels: 3}' && espalier plan job.yaml >plan.out
job '{source: many}' && espalier plan job.yaml >plan.out
job '{source: cifar, labels: small/labels}' && espalier plan job.yaml >plan.out
job '{source: smal}' && espalier plan job.yaml >plan.out
job '{source: small/picture}' && espalier plan job.yaml >plan.out
job '{source: data/small}' && espalier plan job.yaml >plan.out
cp pictures wrong.bin
job '{source: folder, subset: val, size: 8, channels: 3, count: 3}' && espalier plan job.yaml >plan.out
job '{source: wrong.bin}' && espalier run job.yaml --quiet --progress=none >run.out
