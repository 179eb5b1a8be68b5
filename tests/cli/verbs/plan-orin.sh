# The job for a board can be planned on any machine: it says when its file is missing, and what it
# will measure when it is there. (Exit codes and limits depend on whether there is a GPU here.)
espalier plan $SRC/jobs/orin-validate.yaml 2>&1 | grep -c "cannot find artifact 'encoded.h5'"
espalier synth --encoded --shape=llama --layers=1 --vocab=64 --quiet encoded.h5 >synth.txt
espalier plan $SRC/jobs/orin-validate.yaml 2>/dev/null |
    grep -o "5 forms at 3 numbers of tokens\|3 runtimes at 2 places"
