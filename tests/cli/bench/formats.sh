# Bytes, PMR, intensity and time of a small random matrix: the same on every machine.
espalier bench formats --shape=96x192 --sparsity=0.5 --tokens=4 --device=thor-agx
