# SPDX-License-Identifier: Apache-2.0
"""Write the streams that must be rejected, CODE-what.tns, beside this file.

Each is a published example with one thing changed. OK-what.tns must be accepted; where what begins
with "strict" only a strict reader rejects. Run it again after adding a row; nothing else is needed:
the tests read the folder. The examples themselves go to the corpus of the fuzz target.
"""
import hashlib
import gzip
import io
import pathlib
import struct
import sys
import zlib

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "examples/python"))
import tns  # noqa: E402

SHARD = {"coord": [1], "global": [2, 4], "mesh": [["tp", 2]], "offset": [1, 0],
         "place": [["tp"], []]}


def stream(build):
    f = io.BytesIO()
    w = tns.Writer(f)
    build(w)
    return f.getvalue()


def example_1(w):
    w.tensor("w", "bf16", (2, 3), bytes.fromhex("803f 0040 4040 80bf 003f 0000"))
    w.end()


def example_2(w):
    w.meta("safetensors", {"metadata": {"format": "pt"}})
    w.tensor("l.w", "f8_e4m3fn", (1, 4), bytes.fromhex("38c07e30"), {"shard": SHARD})
    w.tensor("q", "i4", (3,), bytes.fromhex("e107"))
    w.tensor("s", "f32", (), struct.pack("<f", 3.5))
    w.tensor("e", "f32", (0, 7), b"")
    w.end()


def example_3(w):
    w.tensor("b", "q4_0", (1, 32), b"\x00\x3c" + bytes(range(0x10, 0x20)))
    w.end()


EX0 = stream(lambda w: w.end())
EX1, EX2, EX3 = stream(example_1), stream(example_2), stream(example_3)
for data, sha in ((EX0, "9c6be72967376e9d"), (EX1, "37c8d22d929f7542"),
                  (EX2, "d1f8788a9d86b615"), (EX3, "8ee73d0596e0e464"),
                  (EX1 + EX2, "647ad4617fbd0134")):
    assert hashlib.sha256(data).hexdigest().startswith(sha)


def change(data, at, new):
    """Bytes at `at` replaced by new, an int or bytes."""
    new = bytes([new]) if isinstance(new, int) else new
    return data[:at] + new + data[at + len(new):]


def fix(data, at=0):
    """header_crc of the record at `at` made right, nothing else."""
    size = struct.unpack_from("<I", data, at + 16)[0]
    head = change(data[at:at + size], 60, bytes(4))
    return change(data, at + 60, struct.pack("<I", zlib.crc32(head)))


def words(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def mend(data, at, payload):
    """fix, and all that depends on the header: trailer copy, digest, END."""
    data = fix(data, at)
    size, length = struct.unpack_from("<I", data, at + 16)[0], len(payload)
    if length:
        trailer = at + size + length + -(length + 8) % 64
        data = change(data, trailer, struct.pack("<I", zlib.crc32(payload)) + data[at + 60:at + 64])
    pos = digest = 0
    while struct.unpack_from("<H", data, pos + 10)[0] != tns.END:
        size, = struct.unpack_from("<I", data, pos + 16)
        length, = struct.unpack_from("<Q", data, pos + 40)
        body = length + -(length + 8) % 64 + 8 if length else 0
        crc = data[pos + size + body - 8:pos + size + body - 4] if length else bytes(4)
        digest = zlib.crc32(data[pos + 60:pos + 64] + crc, digest)
        pos += size + body
    return fix(change(data, pos + 64 + 24, words(digest)), pos)


def one(*args, **kw):
    """A segment of one record."""
    def build(w):
        w.rec(*args, **kw)
        w.end()
    return stream(build)


def with_meta(text):
    return one(tns.META, name="t", meta=text)


def with_index(spoil=lambda e: e, after=False, count=1, announced=True):
    def build(w):
        w.tensor("w", "u8", (2,), b"ab")
        at, head = 0, w.f.getvalue()
        entry = struct.pack("<QQIIIIQ", at, 2, 128, struct.unpack_from("<I", head, 60)[0],
                            zlib.crc32(b"ab"), zlib.crc32(b"w"), 0)
        index = w.size
        w.rec(tns.INDEX, (count,), data=spoil(entry))
        if after:
            w.meta("late", {"a": 1})
        w.rec(tns.END, (w.n, w.size, announced and w.size - index, w.dig))
    return stream(build)


def padded(last):
    """A PAD of 128 bytes whose last one is given, and END."""
    pad = fix(change(stream(lambda w: w.rec(tns.PAD)) + bytes(63) + bytes([last]), 16, 128))
    return pad + fix(change(EX0, 64, words(1, 128, 0, 0)))


NPY = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }".ljust(
    117) + b"\n" + struct.pack("<2f", 1, 2)
ST_HEADER = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'.ljust(56)
SAFETENSORS = struct.pack("<Q", len(ST_HEADER)) + ST_HEADER + struct.pack("<2f", 1, 2)
DEEP = b'{"a":' * 16 + b'{}' + b"}" * 16

ROWS = {
    "EEMPTY-nothing": b"",
    "ETRUNC-cut-at-40": EX1[:40],
    "ETRUNC-cut-at-100": EX1[:100],
    "ETRUNC-cut-at-133": EX1[:133],
    "ETRUNC-cut-at-319": EX1[:319],
    "ENOEND-cut-at-192": EX1[:192],
    "EMAGIC-first-byte": change(EX1, 0, 0x88),
    "EMAGIC-npy": NPY,
    "EMAGIC-safetensors": SAFETENSORS,
    "EMAGIC-gzip": gzip.compress(EX1, mtime=0),
    "EMAGIC-text-mode": EX1.replace(b"\r\n", b"\n"),
    "EVERSION-two": change(EX1, 0x08, 2),
    "EHEADER-length-129": change(EX1, 0x10, 0x81),
    "ELIMIT-header-of-1-gib": change(EX1, 0x13, 0x40),
    "EHCRC-shape": change(EX1, 0x40, 3),
    "ESIZE-shape-of-another-size": fix(change(EX1, 0x40, 3)),
    "ETYPE-seven": fix(change(EX1, 0x0A, 7)),
    "EFLAG-critical": fix(change(EX1, 0x0D, 1)),
    "ECODEC-one": fix(change(EX1, 0x09, 1)),
    "EHEADER-reserved-byte": fix(change(EX1, 0x1B, 1)),
    "EHEADER-name-runs-past": fix(change(EX1, 0x18, 0xFF)),
    "EDTYPE-block-bytes": fix(change(EX1, 0x20, 4)),
    "EDTYPE-block-elems-0": fix(change(EX1, 0x1C, 0)),
    "ENAME-ill-formed": fix(change(EX1, 0x50, 0xFF)),
    "ENAME-newline": fix(change(EX1, 0x50, 0x0A)),
    "ESIZE-product-wraps": fix(change(EX1, 0x40, words(2**62, 2**62))),
    "ELIMIT-dimension": fix(change(EX1, 0x40, words(2**63, 0))),
    "ELIMIT-65-dimensions": fix(change(EX1, 0x1A, 0x41)),
    "EPCRC-payload-byte": change(EX1, 0x82, 1),
    "EPAD-padding-byte": change(EX1, 0x8C, 1),
    "EFRAME-byte-lost": EX1[:0x85] + EX1[0x86:],
    "EFRAME-zeros-inserted": EX1[:0x84] + bytes(64) + EX1[0x84:],
    "EFRAME-stale-trailer": fix(change(EX1, 0x0C, 0x80)),
    "EEND-record-count": fix(change(EX1, 0x100, 2), 0xC0),
    "EEND-record-dropped": EX2[:0x180] + EX2[0x240:],
    "EEND-records-exchanged": EX2[:0x180] + EX2[0x240:0x300] + EX2[0x180:0x240] + EX2[0x300:],
    "EEND-segment-without-end": EX1[:192] + EX2,
    "EGARBAGE-one-byte": EX1 + b"x",
    "EGARBAGE-zeros": EX1 + bytes(512),
    "ETRUNC-next-header": EX1 + EX2[:64],
    "EMETA-array": fix(change(EX2, 0xD3, 0x5B), 0x80),
    "ESHARD-beyond-the-whole": fix(change(EX2, 0x114, 0x32), 0x80),
    "ESIZE-half-a-block": fix(change(EX3, 0x48, 31)),
    "OK-flag-to-ignore": mend(change(EX1, 0x0C, 0x80), 0, EX1[0x80:0x8C]),
    "OK-type-to-pass": mend(change(EX2, 0x0A, struct.pack("<H", 0x9000)), 0, b""),
    # The sentences behind the table.
    "EMETA-duplicate-key": with_meta(b'{"a":1,"a":2}'),
    "EMETA-depth-17": with_meta(DEEP),
    "OK-depth-16": with_meta(DEEP[5:-1]),
    "EMETA-nan": with_meta(b'{"a":NaN}'),
    "EMETA-overflow": with_meta(b'{"a":1e999}'),
    "EMETA-ill-formed-utf8": with_meta(b'{"a":"\xff"}'),
    "EMETA-text-behind": with_meta(b'{"a":1} x'),
    "EHEADER-end-with-name": one(tns.END, (0, 0, 0, 0), name="x"),
    "EHEADER-end-of-rank-3": one(tns.END, (0, 0, 0)),
    "EHEADER-meta-with-payload": one(tns.META, name="t", data=b"x"),
    "EHEADER-meta-with-dtype": one(tns.META, name="t", dtype=0x0108),
    "EHEADER-index-with-dtype": one(tns.INDEX, (0,), dtype=0x0108),
    "EHEADER-index-with-name": one(tns.INDEX, (0,), name="x"),
    "EHEADER-pad-with-payload": one(tns.PAD, data=b"x"),
    "EHEADER-pad-with-dtype": one(tns.PAD, block=(1, 0)),
    "ENAME-tensor-without": one(tns.TENSOR, (1,), dtype=0x0108, block=(1, 1), data=b"x"),
    "ENAME-topic-with-del": one(tns.META, name="a\x7f"),
    "EDTYPE-none": one(tns.TENSOR, (1,), "w", dtype=0, block=(1, 1), data=b"x"),
    "OK-unknown-dtype": one(tns.TENSOR, (5,), "w", dtype=0x4203, block=(2, 3), data=b"123456789"),
    "OK-index": with_index(),
    "OK-index-unannounced": with_index(announced=False),
    "OK-header-tail": mend(change(EX2, 0x70, b"tail"), 0, b""),
    "ESIZE-raw-length": fix(change(EX1, 0x30, 13)),
    "ELIMIT-metadata-of-32-mib": fix(change(EX1, 0x17, 2)),
    "EHEADER-end-of-192-bytes": fix(change(EX0 + bytes(64), 16, 192)),
    "EINDEX-entry": with_index(lambda e: change(e, 20, 1 ^ e[20])),
    "EINDEX-empty": with_index(lambda e: b"", count=0),
    "EINDEX-count": with_index(count=2),
    "EINDEX-late-record": with_index(after=True),
    "EPAD-strict-pad-body": padded(1),
    "OK-pad": padded(0),
    "EPAD-strict-unused-bits": one(tns.TENSOR, (3,), "q", dtype=0x0004, block=(2, 1),
                                   data=b"\x21\x43"),
    "ETRUNC-payload-of-2-62": fix(change(one(
        tns.TENSOR, (2**62,), "z", dtype=0x0108, block=(1, 1)), 40,
        words(2**62, 2**62)))[:128] + bytes(100),
}


def main():
    for old in HERE.glob("*.tns"):
        old.unlink()
    corpus = ROOT / "tests/fuzz/corpus/stream"
    corpus.mkdir(parents=True, exist_ok=True)
    for name, data in ROWS.items():
        (HERE / f"{name}.tns").write_bytes(data)
        link = corpus / f"{name}.tns"
        link.unlink(missing_ok=True)
        link.symlink_to(f"../../../bad/{name}.tns")
    for name, data in {"0": EX0, "1": EX1, "2": EX2, "3": EX3, "1-2": EX1 + EX2}.items():
        (corpus / f"example-{name}.tns").write_bytes(data)


if __name__ == "__main__":
    main()
