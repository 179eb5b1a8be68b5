# What bench spmm refuses before it looks for a device.
echo "no library" >text.so
espalier bench spmm --baseline-library ./text.so 2>err
echo "exit $?"
head -n 1 err | cut -c -60
tail -n 1 err
for option in '--backend=ref' '--backend=cpu --sweep' '--backend=cpu --tune=t.json' '--tune=a.json --tuning=b.json' \
    '--ablation --output=a.h5' '--ablation --atom' '--backend=cpu --atom' '--backend=cpu --instruction=int8' '--group=64' '--atom --group=-1' \
    '--backend=cpu --pipeline=own' '--ablation --pipeline=own' '--tune=t.json --pipeline=producer' '--pipeline=both' \
    '--atom --shape=512x448' '--atom --shape=64x128' '--bits=8' '--backend=cpu --bits=3' '--form=3x3' '--tokens=65' '--shape=200000x1'; do
    # Two options in one word, on purpose.
    # shellcheck disable=SC2086
    espalier bench spmm $option 2>&1
    echo "exit $?"
done
