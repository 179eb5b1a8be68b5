# A picture that cannot be decoded is named; with on_error: skip it is left out and counted.
mkdir -p set/ant set/bee
cp "$SRC/tests/data/images/pictures/colour.png" set/ant/1.png
cp "$SRC/tests/data/images/pictures/truncated.jpg" set/bee/2.jpg
cat >job.yaml <<END
version: 1
name: small
stages:
  - id: pictures
    use: images
    with: {source: set, size: 16, channels: 3}
END
espalier run job.yaml --progress=none --quiet >out 2>err
code=$?
sed 's/damaged: .*/damaged: .../' err >&2
espalier run job.yaml --progress=none --quiet --set=pictures.on_error=skip >out 2>err || exit 98
exit $code
