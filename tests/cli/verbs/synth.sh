espalier synth --shape=opt --layers=1 --hidden=64 --heads=4 --ffn=128 --vocab=64 --dtype=f32 \
    --quiet one && ls one
espalier synth --shape=opt --layers=1 --hidden=64 --heads=4 --ffn=128 --vocab=64 --dtype=f32 \
    --quiet two
cmp one/model.safetensors two/model.safetensors && echo "same bytes"
espalier synth --size=4 three
