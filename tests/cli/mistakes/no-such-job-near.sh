# A job file that is not there, but one with nearly that name is.
mkdir jobs
echo >jobs/quickstart.yaml
echo >jobs/other.yaml
espalier run quickstrat
espalier run jobs/quickstrat.yaml
espalier run jobs
espalier run jobs/something-else.yaml
