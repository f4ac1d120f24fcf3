# SPDX-License-Identifier: Apache-2.0
"""Streams with metadata that no command writes by itself: python3 make.py FOLDER.

The writer is the one of tensor-stream(5), standard library only, so these files are an oracle that
shares no code with the C writer. Needs Python 3.6 or later; the bytes do not depend on the version.
"""
import json, os, struct, sys, zlib

MAGIC = b"\x89TNS\r\n\x1a\n"


class Writer:
    def __init__(self, path):
        self.f, self.n, self.size, self.dig = open(path, "wb"), 0, 0, 0

    def rec(self, kind, words=(), name="", meta=None, dtype=0, block=(0, 0), data=b""):
        nm = name.encode()
        mt = json.dumps(meta, sort_keys=True, separators=(",", ":"),
                        ensure_ascii=False).encode() if meta else b""
        var = struct.pack(f"<{len(words)}Q", *words) + nm + mt
        hlen = (64 + len(var) + 63) & ~63
        h = bytearray(struct.pack("<8sBBHHHIIHBBIIIQQII", MAGIC, 1, 0, kind, 0, dtype, hlen,
                                  len(mt), len(nm), len(words), 0, block[0], block[1], 0,
                                  len(data), len(data), 0, 0) + var).ljust(hlen, b"\0")
        hcrc = zlib.crc32(h)
        struct.pack_into("<I", h, 60, hcrc)
        pcrc = zlib.crc32(data)
        tail = b"\0" * (-(len(data) + 8) % 64) + struct.pack("<II", pcrc, hcrc) if data else b""
        for part in (h, data, tail):
            self.f.write(part)
        self.n += 1
        self.size += len(h) + len(data) + len(tail)
        self.dig = zlib.crc32(struct.pack("<II", hcrc, pcrc), self.dig)

    def end(self):
        self.rec(2, (self.n, self.size, 0, self.dig))
        self.n = self.size = self.dig = 0

    def i32(self, name, shape, values, meta=None):
        self.rec(1, shape, name, meta, 0x0020, (1, 4), struct.pack(f"<{len(values)}i", *values))


def box(rows, cols):
    return [6 * r + c for r in range(*rows) for c in range(*cols)]


def piece(w, rows, cols, whole=(4, 6), **more):
    """A box of a = arange(24).reshape(4, 6)."""
    shape = (rows[1] - rows[0], cols[1] - cols[0])
    meta = {"shard": {"global": list(whole), "offset": [rows[0], cols[0]]}}
    w.i32("a", shape, box(rows, cols), dict(meta, **more))


out = sys.argv[1]

w = Writer(os.path.join(out, "whole.tns"))
w.i32("a", (4, 6), range(24))
w.end()

# Each rank is a segment; the replica of the first comes last; another tensor stands between.
w = Writer(os.path.join(out, "pieces.tns"))
w.rec(0x8001, (), "contents", {"tensors": [["a", "i32", [2, 4]]]})
piece(w, (2, 4), (4, 6))
w.end()
piece(w, (0, 2), (0, 4))
w.i32("other", (2,), (7, 8))
w.end()
piece(w, (0, 2), (4, 6))
w.end()
piece(w, (2, 4), (0, 4))
piece(w, (0, 2), (0, 4))
w.end()

w = Writer(os.path.join(out, "hole.tns"))
piece(w, (2, 4), (4, 6))
piece(w, (0, 2), (0, 4))
piece(w, (0, 2), (4, 6))
w.end()

w = Writer(os.path.join(out, "differ.tns"))
piece(w, (0, 2), (0, 6))
w.i32("a", (2, 6), [0] * 12, {"shard": {"global": [4, 6], "offset": [0, 0]}})
piece(w, (2, 4), (0, 6))
w.end()

w = Writer(os.path.join(out, "overlap.tns"))
piece(w, (0, 3), (0, 6))
piece(w, (2, 4), (0, 6))
w.end()

# ZeRO: ranges of the flattened tensor; metadata of another owner stays.
w = Writer(os.path.join(out, "flat.tns"))
for begin, end in ((10, 24), (0, 3), (3, 10)):
    w.i32("a", (end - begin,), range(begin, end),
          {"flat": {"global": [4, 6], "range": [begin, end]}, "org.key": 1})
w.end()

# A producer that does not know its length until the end.
w = Writer(os.path.join(out, "grows.tns"))
piece(w, (0, 1), (0, 6), (None, 6))
piece(w, (1, 3), (0, 6), (None, 6))
piece(w, (3, 4), (0, 6), (4, 6))
w.end()

w = Writer(os.path.join(out, "sum.tns"))
w.i32("a", (2,), (1, 2), {"shard": {"global": [2], "offset": [0], "mesh": [["dp", 2]],
                                   "coord": [0], "partial": ["dp"]}})
w.end()

# Codes whose scale is another record, an importer's note, and what was promised to come.
w = Writer(os.path.join(out, "meta.tns"))
w.rec(0x8001, (), "contents", {"tensors": [["w", "i32", [2]], ["w.scale", "i32", [1]],
                                           ["v", "f32", [3, 2]]]})
w.i32("w", (2,), (1, 2), {"quant": {"scheme": "test", "scale": "w.scale"}})
w.i32("w.scale", (1,), (3,))
w.rec(1, (3, 2), "v", {"src": {"format": "npy", "descr": ">f4"}, "x.y": True}, 0x0220, (1, 4),
      struct.pack("<6f", 1, 2, 3, 4, 5, 6))
w.rec(0x9000, (1, 2), "unknown but harmless")
w.end()
