# SPDX-License-Identifier: Apache-2.0
"""Tensor streams (tensor-stream(5)) in Python's standard library alone.

    import tns
    with open("m.tns", "wb") as f:
        w = tns.Writer(f)
        w.tensor("w", "bf16", (2, 3), data)
        w.end()
    for rec in tns.read(open("m.tns", "rb")):
        print(rec.kind, rec.name, rec.dtype, rec.words, len(rec.data))

As a program: `tns.py check FILE...` verifies, `tns.py ls FILE...` lists, `tns.py copy <IN >OUT`
reads and writes again. It was written from the description of the format, not from the C library,
and the tests compare the two.
"""
import json
import math
import struct
import sys
import zlib

MAGIC = b"\x89TNS\r\n\x1a\n"
FIXED = "<8sBBHHHIIHBBIIIQQII"
TENSOR, END, META, INDEX, PAD = 0x0001, 0x0002, 0x8001, 0xC001, 0xC002

# name: code, elements per block, bytes per block
DTYPES = {
    "i8": (0x0008, 1, 1), "i16": (0x0010, 1, 2), "i32": (0x0020, 1, 4), "i64": (0x0040, 1, 8),
    "u8": (0x0108, 1, 1), "u16": (0x0110, 1, 2), "u32": (0x0120, 1, 4), "u64": (0x0140, 1, 8),
    "i4": (0x0004, 2, 1), "u4": (0x0104, 2, 1), "i2": (0x0002, 4, 1), "u2": (0x0102, 4, 1),
    "u1": (0x0101, 8, 1), "f16": (0x0210, 1, 2), "f32": (0x0220, 1, 4), "f64": (0x0240, 1, 8),
    "c64": (0x0540, 1, 8), "c128": (0x0580, 1, 16), "bool": (0x0608, 1, 1),
    "bf16": (0x0410, 1, 2), "f8_e4m3fn": (0x0A08, 1, 1), "f8_e4m3fnuz": (0x0B08, 1, 1),
    "f8_e5m2": (0x0C08, 1, 1), "f8_e5m2fnuz": (0x0D08, 1, 1), "f8_e8m0": (0x0E08, 1, 1),
    "f6_e2m3": (0x0F06, 4, 3), "f6_e3m2": (0x1006, 4, 3), "f4_e2m1": (0x1104, 2, 1),
    "q4_0": (0x8002, 32, 18), "q4_1": (0x8003, 32, 20), "q5_0": (0x8006, 32, 22),
    "q5_1": (0x8007, 32, 24), "q8_0": (0x8008, 32, 34), "q8_1": (0x8009, 32, 36),
    "q2_k": (0x800A, 256, 84), "q3_k": (0x800B, 256, 110), "q4_k": (0x800C, 256, 144),
    "q5_k": (0x800D, 256, 176), "q6_k": (0x800E, 256, 210), "q8_k": (0x800F, 256, 292),
    "iq2_xxs": (0x8010, 256, 66), "iq2_xs": (0x8011, 256, 74), "iq3_xxs": (0x8012, 256, 98),
    "iq1_s": (0x8013, 256, 50), "iq4_nl": (0x8014, 32, 18), "iq3_s": (0x8015, 256, 110),
    "iq2_s": (0x8016, 256, 82), "iq4_xs": (0x8017, 256, 136), "iq1_m": (0x801D, 256, 56),
    "tq1_0": (0x8022, 256, 54), "tq2_0": (0x8023, 256, 66), "mxfp4": (0x8027, 32, 17),
    "nvfp4": (0x8028, 64, 36), "q1_0": (0x8029, 128, 18), "q2_0": (0x802A, 64, 18),
}
NAMES = {code: name for name, (code, _, _) in DTYPES.items()}


class Error(Exception):
    """A stream against the rules: code as the C library names it ("EPCRC"), offset in bytes."""

    def __init__(self, code, offset, why):
        super().__init__(f"byte {offset}: {why} (TU_{code})")
        self.code, self.offset = code, offset


# Writing ------------------------------------------------------------------------------------------

def canonical(meta):
    """Equal metadata, equal bytes."""
    return json.dumps(meta, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


class Writer:
    def __init__(self, f):
        self.f, self.n, self.size, self.dig = f, 0, 0, 0

    def rec(self, kind, words=(), name="", meta=None, dtype=0, block=(0, 0), data=b"", flags=0):
        """Any record. meta: an object, or its bytes."""
        nm = name if isinstance(name, bytes) else name.encode()
        mt = meta if isinstance(meta, bytes) else canonical(meta) if meta else b""
        var = struct.pack(f"<{len(words)}Q", *words) + nm + mt
        hlen = (64 + len(var) + 63) & ~63
        h = bytearray(struct.pack(
            FIXED, MAGIC, 1, 0, kind, flags, dtype, hlen, len(mt), len(nm), len(words), 0,
            block[0], block[1], 0, len(data), len(data), 0, 0) + var).ljust(hlen, b"\0")
        hcrc = zlib.crc32(h)
        struct.pack_into("<I", h, 60, hcrc)
        pcrc = zlib.crc32(data)
        tail = b""
        if len(data):
            tail = b"\0" * (-(len(data) + 8) % 64) + struct.pack("<II", pcrc, hcrc)
        for part in (h, data, tail):
            self.f.write(part)
        self.n += 1
        self.size += len(h) + len(data) + len(tail)
        if kind < 0xC000:
            self.dig = zlib.crc32(struct.pack("<II", hcrc, pcrc), self.dig)

    def tensor(self, name, dtype, shape, data, meta=None):
        code, elems, size = DTYPES[dtype]
        self.rec(TENSOR, shape, name, meta, code, (elems, size), data)

    def meta(self, topic, value):
        self.rec(META, (), topic, value)

    def end(self):
        """Close the segment; the next record begins another."""
        self.rec(END, (self.n, self.size, 0, self.dig))
        self.f.flush()
        self.n, self.size, self.dig = 0, 0, 0


# Reading ------------------------------------------------------------------------------------------

class Record:
    """One record, its payload in memory."""
    __slots__ = ("kind", "flags", "words", "name", "meta", "dtype", "block", "data", "offset",
                 "header", "header_crc", "payload_crc")

    @property
    def shape(self):
        return self.words if self.kind == TENSOR else None


def strict_json(text, at):
    """An object without duplicate keys, finite, at most 16 deep."""
    def pairs(items):
        if len({k for k, _ in items}) < len(items):
            raise ValueError("duplicate key")
        return dict(items)

    def real(s):
        if not math.isfinite(float(s)):
            raise ValueError(f"{s} is not finite")
        return float(s)

    def integer(s):
        if not -2**63 <= int(s) < 2**63:
            raise ValueError(f"{s} does not fit 64 bits")
        return int(s)

    def constant(s):
        raise ValueError(f"{s} is no JSON")

    def depth(v):
        if isinstance(v, dict):
            v = list(v.values())
        return 1 + max(map(depth, v), default=0) if isinstance(v, list) else 0

    try:
        v = json.loads(text.decode("utf-8"), object_pairs_hook=pairs, parse_float=real,
                       parse_int=integer, parse_constant=constant)
        if not isinstance(v, dict):
            raise ValueError("not an object")
        if depth(v) > 16:
            raise ValueError("nested deeper than 16")
        canonical(v)  # lone surrogates are not text
    except (ValueError, RecursionError) as e:
        raise Error("EMETA", at, f"metadata: {e}") from None
    return v


def check_name(rec, name, at):
    try:
        rec.name = name.decode("utf-8")
    except UnicodeDecodeError:
        raise Error("ENAME", at, "name is not UTF-8") from None
    if any(c < " " or c == "\x7f" for c in rec.name):
        raise Error("ENAME", at, "name with a control character")
    if rec.kind == TENSOR and not name:
        raise Error("ENAME", at, "tensor without a name")


def elements(rec, shape, at):
    n = 1
    if any(d >= 2**63 for d in shape):
        raise Error("ELIMIT", at, "a dimension of 2^63 or more")
    for d in shape:
        n *= d
    if n >= 2**64:
        raise Error("ESIZE", at, "the shape's product does not fit 64 bits")
    if n >= 2**63:
        raise Error("ELIMIT", at, "2^63 elements or more")
    return n


def check_sizes(rec, size, at):
    elems, unit = rec.block
    n = elements(rec, rec.words, at)
    if 0x8000 <= rec.dtype < 0xF000 and (not rec.words or rec.words[-1] % elems):
        raise Error("ESIZE", at, "last dimension is not a multiple of the block")
    if -(-n // elems) * unit != size:
        raise Error("ESIZE", at, f"payload of {size} bytes does not fit shape {rec.words}")


def count(v):
    """A count, or its decimal text."""
    if isinstance(v, str) and v.isascii() and v.isdigit():
        v = int(v)
    if isinstance(v, bool) or not isinstance(v, int) or not 0 <= v < 2**63:
        raise ValueError("not a count")
    return v


def check_shard(rec, meta):
    shard, flat = meta.get("shard"), meta.get("flat")
    if "shard" in meta:
        whole, offset = shard["global"], [count(v) for v in shard["offset"]]
        if not len(whole) == len(offset) == len(rec.words):
            raise ValueError("rank differs")
        for g, o, d in zip(whole, offset, rec.words):
            if g is not None and o + d > count(g):
                raise ValueError("a piece beyond its whole")
        mesh = {str(name): count(size) for name, size in shard.get("mesh", [])}
        if len(mesh) != len(shard.get("mesh", [])) or 0 in mesh.values():
            raise ValueError("mesh")
        coord = shard.get("coord")
        if coord is not None and (len(coord) != len(mesh) or
                                  any(count(c) >= n for c, n in zip(coord, mesh.values()))):
            raise ValueError("coord")
        place = shard.get("place", [[]] * len(rec.words))
        used = [a for axes in place for a in axes] + shard.get("partial", [])
        if len(place) != len(rec.words) or len(set(used)) < len(used) or set(used) - set(mesh):
            raise ValueError("place")
    if "flat" in meta:
        begin, end = map(count, flat["range"])
        if not begin <= end <= math.prod(map(count, flat["global"])):
            raise ValueError("range")
        if rec.words != (end - begin,):
            raise ValueError("shape is not the range")


class Reader:
    """The checks in the order of the description; iterate for the records, END included."""

    def __init__(self, f, strict=False):
        self.f, self.pos, self.strict = f, 0, strict

    def take(self, n):
        parts, left = [], n
        while left:  # pieces: a header's claim allocates nothing
            part = self.f.read(min(left, 1 << 20))
            if not part:
                break
            parts.append(part)
            left -= len(part)
            self.pos += len(part)
        return b"".join(parts)

    def header(self, ended):
        """Steps 1-15. None at a legal end."""
        at = self.pos
        h = self.take(64)
        if not h:
            if ended:
                return None
            raise Error("EEMPTY" if at == 0 else "ENOEND", at, "no END record")
        if h[:8] != MAGIC[:len(h)]:
            raise Error("EGARBAGE" if ended else "EMAGIC", at, "no record begins here")
        if len(h) < 64:
            raise Error("ETRUNC", at, "ends inside a header")
        (_, version, codec, kind, flags, dtype, hlen, mlen, nlen, nwords, r1, elems, unit, r2,
         size, raw, r3, hcrc) = struct.unpack(FIXED, h)
        if version != 1:
            raise Error("EVERSION", at + 8, f"version {version}")
        if hlen < 64 or hlen % 64:
            raise Error("EHEADER", at + 16, f"header length {hlen}")
        if hlen > 1 << 26:
            raise Error("ELIMIT", at + 16, f"header length {hlen}")
        h += self.take(hlen - 64)
        if len(h) < hlen:
            raise Error("ETRUNC", at, "ends inside a header")
        if zlib.crc32(h[:60] + b"\0\0\0\0" + h[64:]) != hcrc:
            raise Error("EHCRC", at + 60, "header checksum mismatch")
        need = 64 + 8 * nwords
        words = struct.unpack_from(f"<{min(nwords, (hlen - 64) // 8)}Q", h, 64)
        if mlen > 1 << 24 or nwords > 64 or size >= 2**63 or raw >= 2**63 or (
                kind == TENSOR and need <= hlen and any(w >= 2**63 for w in words)):
            raise Error("ELIMIT", at, "a size over its limit")
        if need + nlen + mlen > hlen or r1 or r2 or r3:
            raise Error("EHEADER", at, "lengths that do not fit, or a reserved field in use")
        if flags >> 8:
            raise Error("EFLAG", at + 12, f"flags {flags:04x}")
        self.check_kind(kind, hlen, nwords, nlen, mlen, size or raw, dtype or elems or unit, at)
        if codec:
            raise Error("ECODEC", at + 9, f"codec {codec}")
        if raw != size:
            raise Error("ESIZE", at + 48, "raw_len is not payload_len")
        rec = Record()
        rec.kind, rec.flags, rec.words, rec.dtype = kind, flags, words, dtype
        rec.block, rec.offset, rec.header, rec.header_crc = (elems, unit), at, h, hcrc
        check_name(rec, h[need:need + nlen], at + need)
        rec.meta = None
        if mlen:
            rec.meta = strict_json(h[need + nlen:need + nlen + mlen], at + need + nlen)
        if kind == TENSOR:
            known = DTYPES.get(NAMES.get(dtype))
            if not dtype or not elems or not unit or (known and known[1:] != rec.block):
                raise Error("EDTYPE", at + 14, f"dtype {dtype:04x} in blocks {rec.block}")
            check_sizes(rec, size, at + 64)
            try:
                check_shard(rec, rec.meta or {})
            except (ValueError, TypeError, KeyError, AttributeError) as e:
                raise Error("ESHARD", at, f"shard metadata: {e}") from None
        if self.strict and kind == PAD and any(h[64:]):
            raise Error("EPAD", at, "PAD with a byte that is not zero")
        return rec, size

    @staticmethod
    def check_kind(kind, hlen, nwords, nlen, mlen, size, dtype, at):
        if kind < 0x8000 and kind not in (TENSOR, END):
            raise Error("ETYPE", at + 10, f"unknown critical type {kind:04x}")
        words = {END: 4, META: 0, INDEX: 1, PAD: 0}.get(kind, nwords)
        if (nwords != words or (kind != TENSOR and dtype)
                or (kind in (END, INDEX, PAD) and (nlen or mlen))
                or (kind in (END, META, PAD) and size) or (kind == END and hlen != 128)):
            raise Error("EHEADER", at, f"a field that type {kind:04x} does not have")

    def payload(self, rec, size):
        """Step 16."""
        at = self.pos
        rec.data, rec.payload_crc = b"", 0
        if not size:
            return
        rec.data = self.take(size)
        pad = -(size + 8) % 64
        tail = self.take(pad + 8) if len(rec.data) == size else b""
        if len(tail) < pad + 8:
            raise Error("ETRUNC", self.pos, "ends inside a payload")
        rec.payload_crc, copy = struct.unpack("<II", tail[pad:])
        if copy != rec.header_crc:
            raise Error("EFRAME", at + size, "bytes lost or inserted")
        if any(tail[:pad]):
            raise Error("EPAD", at + size, "padding is not zero")
        if zlib.crc32(rec.data) != rec.payload_crc:
            raise Error("EPCRC", at, "payload checksum mismatch")

    def __iter__(self):
        ended = False
        n = size = dig = 0
        index, entries = None, b""
        while True:
            found = self.header(ended)
            if found is None:
                return
            rec, length = found
            self.payload(rec, length)
            ended = rec.kind == END
            if ended:
                back = size - index[0] if index else 0
                if rec.words[:2] + rec.words[3:] != (n, size, dig) or rec.words[2] not in (0, back):
                    raise Error("EEND", rec.offset, "END disagrees with the records before it")
                if index and index[1] != len(entries):
                    raise Error("EINDEX", rec.offset, "records after the INDEX")
                n = size = dig = 0
                index, entries = None, b""
            else:
                if rec.kind == INDEX:
                    if rec.data != entries or rec.words[0] * 40 != len(entries):
                        raise Error("EINDEX", rec.offset, "INDEX disagrees with the records")
                    index = (size, len(entries))
                if rec.kind in (TENSOR, META):
                    entries += struct.pack("<QQIIIIQ", size, length, len(rec.header),
                                           rec.header_crc, rec.payload_crc,
                                           zlib.crc32(rec.name.encode()), 0)
                if self.strict:
                    self.check_unused(rec)
                if rec.kind < 0xC000:
                    dig = zlib.crc32(struct.pack("<II", rec.header_crc, rec.payload_crc), dig)
                n += 1
                size += self.pos - rec.offset
            yield rec

    @staticmethod
    def check_unused(rec):
        elems, unit = rec.block
        if rec.kind != TENSOR or rec.dtype not in NAMES or rec.dtype >= 0x8000 or elems == 1:
            return
        used = math.prod(rec.words) % elems * (unit * 8 // elems)
        if used and int.from_bytes(rec.data[-unit:], "little") >> used:
            raise Error("EPAD", rec.offset, "unused bits of the last block are not zero")


def read(f, strict=False):
    """The records of a stream that filters pass on, and its ENDs."""
    return (rec for rec in Reader(f, strict) if rec.kind < 0xC000)


# As a program -------------------------------------------------------------------------------------

def line(rec):
    shape = "x".join(map(str, rec.words)) or "-"
    dtype = NAMES.get(rec.dtype, f"0x{rec.dtype:04x}")
    return f"{rec.name}\t{dtype}\t{shape}\t{len(rec.data)}\t{rec.payload_crc:08x}"


def copy(fin, fout):
    w = Writer(fout)
    for rec in read(fin):
        if rec.kind == END:
            w.end()
        else:
            w.rec(rec.kind, rec.words, rec.name, rec.meta, rec.dtype, rec.block, rec.data, rec.flags)


def main(argv):
    if argv[1:] == ["copy"]:
        copy(sys.stdin.buffer, sys.stdout.buffer)
        return 0
    if len(argv) < 3 or argv[1] not in ("check", "ls"):
        print("usage: tns.py check|ls FILE... | tns.py copy <IN >OUT", file=sys.stderr)
        return 2
    status = 0
    for path in argv[2:]:
        try:
            with open(path, "rb") as f:
                for rec in Reader(f, strict=argv[1] == "check"):
                    if argv[1] == "ls" and rec.kind == TENSOR:
                        print(line(rec))
        except Error as e:
            print(f"tns.py: {path}: {e}", file=sys.stderr)
            status = 3
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv))
