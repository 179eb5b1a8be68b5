# The schema, and the plots with their figures.
espalier bench formats --shape=64x128 --sparsity=0.4 --sparsity=0.6 --bits=8 --bandwidth=100 --svg=plots --json >out.json
json_get --keys . <out.json
json_get --keys .device <out.json
json_get .device.bandwidth <out.json
json_get --keys .rows.0 <out.json
ls plots
sed -n 1,4p plots/pmr-precision.csv
