"""tests/data/gguf: files written by the real gguf package.

`<file>.oracle` has the stored bytes of each tensor under ggml's type name in
lower case (q4_k), with the row-major shape; `<file>.f32.oracle` has what the
package's own dequantiser makes of them (absent where it has none).
"""
import os
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Q, GGUFReader, GGUFValueType as V, GGUFWriter, GGUFEndian
from gguf.quants import dequantize, quantize

from common import folder, versions, write_oracle

OUT = folder("gguf")
PLAIN = {"F32": "f32", "F16": "f16", "BF16": "bf16", "F64": "f64", "I8": "i8", "I16": "i16", "I32": "i32", "I64": "i64"}


def oracle(*names):
    """By the package's reader, over all files of a split."""
    rows, values = {}, {}
    for name in names:
        for t in GGUFReader(os.path.join(OUT, name)).tensors:
            kind = t.tensor_type
            shape = tuple(int(n) for n in reversed(t.shape))
            data = t.data.tobytes()
            rows[t.name] = (PLAIN.get(kind.name, kind.name.lower()), shape, data)
            try:
                f = dequantize(np.frombuffer(data, np.uint8).reshape(shape[:-1] + (-1,)), kind) \
                    if kind.name not in PLAIN else None
                if f is not None:
                    assert f.shape == shape
                    values[t.name] = ("f32", shape, np.ascontiguousarray(f, "<f4").tobytes())
            except NotImplementedError:
                pass
    path = os.path.join(OUT, names[0])
    write_oracle(path + ".oracle", rows)
    if values:
        write_oracle(path + ".f32.oracle", values)


def writer(name, arch="llama", **more):
    w = GGUFWriter(os.path.join(OUT, name), arch, **more)
    return w


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


rng = np.random.default_rng(13)

# every kind of value
w = writer("kv.gguf")
w.add_uint8("t.u8", 200)
w.add_int8("t.i8", -100)
w.add_uint16("t.u16", 60000)
w.add_int16("t.i16", -30000)
w.add_uint32("t.u32", 4000000000)
w.add_int32("t.i32", -2000000000)
w.add_float32("t.f32", 1.5e-6)
w.add_bool("t.yes", True)
w.add_bool("t.no", False)
w.add_string("t.text", "naïve \"quoted\"\n\U0001F600")
w.add_string("t.long", "x" * 300)
w.add_uint64("t.u64", 2**64 - 1)
w.add_int64("t.i64", -2**63)
w.add_float64("t.f64", 0.1)
w.add_array("t.strings", ["<s>", "</s>", "", "▁the"])
w.add_array("t.ints", [1, -2, 3])
w.add_array("t.floats", [1.5, -0.25])
w.add_array("t.bools", [True, False, True])
w.add_key_value("t.u8s", b"\x00\x01\xff", V.ARRAY, V.UINT8)
w.add_key_value("t.u64s", [2**63, 1], V.ARRAY, V.UINT64)
w.add_key_value("t.f64s", [0.1, -1e300], V.ARRAY, V.FLOAT64)
w.add_tensor("token_embd.weight", np.arange(12, dtype=np.float32).reshape(3, 4))
finish(w)
oracle("kv.gguf")

w = writer("no_tensors.gguf")
finish(w)

# every plain type; ranks 1 to 4
w = writer("plain.gguf")
w.add_tensor("f32", rng.standard_normal((2, 3, 4, 5)).astype(np.float32))
w.add_tensor("f16", rng.standard_normal((3, 4, 5)).astype(np.float16))
w.add_tensor("bf16", quantize(rng.standard_normal((3, 6)).astype(np.float32), Q.BF16), raw_dtype=Q.BF16)
w.add_tensor("f64", rng.standard_normal((7,)))
for name, dt in (("i8", np.int8), ("i16", np.int16), ("i32", np.int32), ("i64", np.int64)):
    info = np.iinfo(dt)
    w.add_tensor(name, np.array([[info.min, info.max, -1]], dt))
w.add_tensor("one", np.array([3.25], np.float32))
finish(w)
oracle("plain.gguf")

# types that the package can encode: real values
w = writer("encoded.gguf")
w.add_quantization_version(2)
values = rng.standard_normal((3, 256)).astype(np.float32)
values[0, :64] = 0
values[1, :32] = 1e-5
values[2, 0] = 1000
for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4", "TQ1_0", "TQ2_0"):
    w.add_tensor("w." + kind.lower(), quantize(values, Q[kind]), raw_dtype=Q[kind])
w.add_tensor("w.source", values)
finish(w)
oracle("encoded.gguf")

# types that it can only decode: random blocks with sane scales (offsets of the f16 fields)
SCALES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ2_XXS": (0,),
          "IQ2_XS": (0,), "IQ2_S": (0,), "IQ3_XXS": (0,), "IQ3_S": (0,), "IQ1_S": (0,), "IQ1_M": (), "IQ4_NL": (0,),
          "IQ4_XS": (0,), "NVFP4": ()}
w = writer("blocks.gguf")
w.add_quantization_version(2)
for kind, scales in SCALES.items():
    elems, size = GGML_QUANT_SIZES[Q[kind]]
    n = 512 // elems
    blocks = rng.integers(0, 256, (2, n, size), dtype=np.uint8)
    for at in scales:
        half = (rng.standard_normal((2, n)) * 0.01).astype("<f2")
        blocks[:, :, at:at + 2] = half.view(np.uint8).reshape(2, n, 2)
    if kind == "IQ1_M":         # the f16 is spread over the top nibbles of four u16
        half = (rng.standard_normal((2, n)) * 0.01).astype("<f2").view("<u2")
        s = blocks[:, :, 48:56].copy().view("<u2").reshape(2, n, 4)
        for i in range(4):
            s[:, :, i] = (s[:, :, i] & 0x0fff) | (((half >> (4 * i)) & 15) << 12).astype("<u2")
        blocks[:, :, 48:56] = s.view(np.uint8).reshape(2, n, 8)
    if kind == "NVFP4":         # four unsigned e4m3 scales: keep them finite
        blocks[:, :, :4] = rng.integers(0x20, 0x40, (2, n, 4), dtype=np.uint8)
    w.add_tensor("w." + kind.lower(), blocks.reshape(2, n * size), raw_dtype=Q[kind])
finish(w)
oracle("blocks.gguf")

# version 2 has the same layout
data = open(os.path.join(OUT, "plain.gguf"), "rb").read()
open(os.path.join(OUT, "v2.gguf"), "wb").write(data[:4] + struct.pack("<I", 2) + data[8:])
oracle("v2.gguf")

# another alignment
w = writer("align64.gguf")
w.add_custom_alignment(64)
w.add_tensor("a", np.arange(3, dtype=np.float32))
w.add_tensor("b", np.arange(5, dtype=np.float32))
finish(w)
oracle("align64.gguf")

# a big-endian file: to be refused by name
w = writer("refuse_big_endian.gguf", endianess=GGUFEndian.BIG)
w.add_tensor("a", np.arange(3, dtype=np.float32))
finish(w)

# a split: three files, the first without tensors
w = writer("split.gguf", split_max_tensors=2, small_first_shard=True)
w.add_uint32("llama.block_count", 1)
for i in range(4):
    w.add_tensor("blk.%d.weight" % i, rng.standard_normal((2, 32)).astype(np.float32))
finish(w)
parts = sorted(n for n in os.listdir(OUT) if n.startswith("split-") and n.endswith(".gguf"))
oracle(*parts)
print(parts)
versions("gguf", "gguf", "numpy")
