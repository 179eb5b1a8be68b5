export ESPALIER_CACHE=cache
espalier fetch wikitext2 --offline
