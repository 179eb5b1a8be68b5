espalier synth --encoded --shape=opt --layers=1 --vocab=64 --sparsity=0.7 --areas=1x1 --quiet one.h5
espalier synth --encoded --shape=opt --layers=1 --vocab=64 --sparsity=0.7 --areas=1x1 --json \
    two.h5 2>/dev/null
cmp one.h5 two.h5 && echo "same bytes"
espalier inspect --verify one.h5 | tail -1
espalier synth --encoded --sparsity=half three.h5
espalier synth --encoded --areas=3x3 three.h5
espalier synth --encoded --size=4GB three.h5
espalier synth --bits=2 three
espalier synth --encoded --layers=0 three.h5
espalier synth --encoded --seed=-1 three.h5
espalier synth --encoded ""
ls
