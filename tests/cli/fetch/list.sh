# What is built in; nothing is fetched yet.
export ESPALIER_CACHE=cache
espalier fetch --list
