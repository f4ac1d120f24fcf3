"""tests/data/safetensors: files written by the real safetensors library, and
hand-made ones (`hand_*`) for legal forms that its writer never produces."""
import os
import struct

import ml_dtypes
import numpy as np
import torch
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import load_file, save_file

from common import TORCH, folder, torch_row, versions, write_oracle

OUT = folder("safetensors")


def put(name, tensors, metadata=None):
    path = os.path.join(OUT, name)
    save_file(tensors, path, metadata=metadata)
    write_oracle(path + ".oracle", {k: torch_row(t) for k, t in tensors.items()})


torch.manual_seed(3)
put("case1.safetensors", {"t": torch.tensor([1.0, 2.0])})       # the worked case: 72 bytes
put("empty.safetensors", {})                                     # the worked case: 16 bytes
put("one_meta.safetensors", {"w": torch.randn(3, 4)}, {"format": "pt"})
put("many_meta.safetensors", {"w": torch.randn(3, 4)},
    {"format": "pt", "note": "a \"quoted\" line\nand ünïcode \U0001F600", "empty": "", "a\tb": "c"})
put("meta_only.safetensors", {}, {"format": "pt"})
put("scalars.safetensors", {"s32": torch.tensor(1.5), "s64": torch.tensor(-7), "sbool": torch.tensor(True),
                            "sbf16": torch.tensor(2.5, dtype=torch.bfloat16)})
put("zero.safetensors", {"a": torch.zeros(0), "b": torch.zeros(0, 7, dtype=torch.bfloat16),
                         "c": torch.zeros(3, 0, 2, dtype=torch.int64), "z": torch.arange(3)})
special = torch.tensor([[0.0, -0.0, float("inf")], [float("-inf"), float("nan"), 1e-40]])
types = {}
for t in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
          torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
    types[TORCH[str(t).split(".")[1]]] = special.to(t)
for t in (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64):
    info = torch.iinfo(t)
    types[TORCH[str(t).split(".")[1]]] = torch.tensor([info.min, info.max, 1], dtype=torch.int64 if
                                                      info.max < 2**63 else torch.uint64).to(t)
types["bool"] = torch.tensor([True, False, True])
types["c64"] = torch.tensor([1 + 2j, -3j], dtype=torch.complex64)
types["f8_e8m0"] = torch.tensor([1.0, 2.0, 0.25, float("nan")]).to(torch.float8_e8m0fnu)
put("dtypes.safetensors", types)
put("names.safetensors", {"a.b.c": torch.ones(1), "naïve/\U0001F600": torch.ones(2), "with space": torch.ones(3),
                          "q\"uote\\back": torch.ones(4), "": torch.ones(5)})
save_numpy({"x": np.arange(6, dtype="<f4").reshape(2, 3)}, os.path.join(OUT, "numpy.safetensors"))
write_oracle(os.path.join(OUT, "numpy.safetensors.oracle"),
             {"x": ("f32", (2, 3), np.arange(6, dtype="<f4").tobytes())})
# a byte of torch's f4 holds two elements: its shape [2,4] is [2,8] in the file
f4 = torch.arange(0x10, 0x18, dtype=torch.uint8)
save_file({"f4": f4.view(torch.float4_e2m1fn_x2).reshape(2, 4)}, os.path.join(OUT, "f4.safetensors"))
write_oracle(os.path.join(OUT, "f4.safetensors.oracle"), {"f4": ("f4_e2m1", (2, 8), f4.numpy().tobytes())})


def hand(name, header, data, rows, check=True):
    path = os.path.join(OUT, name)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + data)
    write_oracle(path + ".oracle", rows)
    if check:                       # the real library must agree
        got = load_file(path)
        assert {k: torch_row(v) for k, v in got.items()} == rows, name


f = np.arange(1, 7, dtype="<f4").tobytes()
hand("hand_unaligned.safetensors",  # header of 61 bytes: data starts at 69
     b'{"t":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}' + b" " * 4, f, {"t": ("f32", (2, 3), f)})
hand("hand_order.safetensors",      # keys and tensors in another order than the writer's
     b'{"z":{"data_offsets":[24,30],"shape":[3],"dtype":"BF16"},"__metadata__":{},'
     b'"a":{"shape":[2,3],"data_offsets":[0,24],"dtype":"F32"}}', f + b"\x80\x3f\x00\x40\x40\x40",
     {"a": ("f32", (2, 3), f), "z": ("bf16", (3,), b"\x80\x3f\x00\x40\x40\x40")})
hand("hand_escape.safetensors", b'{"\\u0061":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}', b"\1\2",
     {"a": ("u8", (2,), b"\1\2")})
hand("hand_odd_offset.safetensors",  # an f32 behind three bytes
     b'{"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"w":{"dtype":"F32","shape":[6],"data_offsets":[3,27]}}',
     b"\1\2\3" + f, {"b": ("u8", (3,), b"\1\2\3"), "w": ("f32", (6,), f)})
f6 = bytes(range(6))
for kind, key in (("F6_E2M3", "f6_e2m3"), ("F6_E3M2", "f6_e3m2")):
    hand("hand_%s.safetensors" % key,
         ('{"x":{"dtype":"%s","shape":[2,4],"data_offsets":[0,6]}}' % kind).encode(), f6,
         {"x": (key, (2, 4), f6)}, check=False)
versions("safetensors", "safetensors", "torch", "numpy")
