# What is refused, and why.
for option in --shape=64 --shape=0x64 --shape=64x2000000 --sparsity=1.5 --sparsity=half --bits=3 --tokens=0 \
    --bandwidth=fast --device=tpu '--device=h200 --bandwidth=3' \
    --windows=3; do
    # Two options in one word, on purpose.
    # shellcheck disable=SC2086
    espalier bench formats $option
    echo "exit $?"
done
