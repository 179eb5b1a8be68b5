export ESPALIER_CACHE=cache
espalier fetch wikitxt2
