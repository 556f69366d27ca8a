#!/usr/bin/env python3
"""Expand tests/vectors/http/*.txt into one seed file per case: http_seeds.py OUTDIR

OUTDIR/fuzz_http_parse gets a leading selector byte (bit 0: response; bits 1-3: parser flags), the rest raw bytes."""
import codecs, os, sys

FLAGS = {"request": 0, "response": 1, "request+absolute": 2, "request+connect": 4, "response+head": 9}

def cases(path):
    case = {}
    for line in open(path, encoding="latin-1").read().split("\n") + [""]:
        if not line and case:
            yield case
            case = {}
        elif line and not line.startswith("#"):
            key, _, value = line.partition(" ")
            case[key] = value

def main(out):
    here = os.path.join(os.path.dirname(__file__), "..", "vectors", "http")
    for target, name in (("fuzz_http_parse", "parse.txt"), ("fuzz_http_body", "body.txt")):
        os.makedirs(os.path.join(out, target), exist_ok=True)
        for c in cases(os.path.join(here, name)):
            raw = codecs.decode(c.get("in", ""), "unicode_escape").encode("latin-1")
            if target == "fuzz_http_parse":
                raw = bytes([FLAGS[c["kind"]]]) + raw
            with open(os.path.join(out, target, c["case"]), "wb") as f:
                f.write(raw)

main(sys.argv[1])
