# The bench on the CPU: a JSON object, an artifact and plots. Times differ; what they belong to does not.
espalier bench spmm --backend cpu --threads 1 --shape 48x160 --tokens 1 --tokens 9 --sparsity 0.7 \
    --form dense --form 1x1 --repeats 3 --json --output bench.h5 --svg plots >out.json
echo "exit $?"
for path in .schema .cases.0.rows .cases.0.cols .cases.1.tokens .cases.0.results.0.name .cases.0.results.1.name \
    .cases.0.results.2.name .cases.0.results.0.weight_bytes .cases.0.results.0.graph .repeats; do
    json_get $path <out.json
done
espalier inspect bench.h5 --verify | grep -E "^kind|^content|/results/seconds" | sed 's/[0-9a-f]\{64\}/HASH/'
ls plots
head -qn 1 plots/roofline.csv plots/speedups.csv
cut -d, -f 1,2 plots/roofline.csv | sed 1d
