# All mistakes of a registry at once, each where it stands.
export ESPALIER_CACHE=cache
cat >own.yaml <<'END'
version: 1
entries:
  mine:
    kind: txt
    title: My text
    license: mine
    files:
      - name: ../text
        url: http://example.org/text
        sha256: 0123
END
espalier fetch mine --registry own.yaml
