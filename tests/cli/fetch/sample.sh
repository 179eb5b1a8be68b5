# A sample of an image folder: the same lists everywhere.
export ESPALIER_CACHE=cache
cat >own.yaml <<'END'
version: 1
entries:
  sample:
    kind: images
    title: a sample
    licence: none
    manual: make the folder first
    subset: {classes: 2, train_per_class: 2, val_per_class: 1, seed: 300}
END
for split in train val; do
    for class in n01 n02 n03; do
        mkdir -p "set/$split/$class"
        for picture in a b c d; do : >"set/$split/$class/$picture.JPEG"; done
    done
done
espalier fetch sample --registry own.yaml --from set
cat cache/sets/sample/train.txt cache/sets/sample/val.txt
