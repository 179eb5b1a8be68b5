export ESPALIER_CACHE=cache
espalier fetch imagenet-val
