"""tests/data/npy: files written by the real numpy (and ml_dtypes)."""
import io
import os
import warnings

import ml_dtypes
import numpy as np

from common import folder, versions, write_oracle

OUT = folder("npy")
NAMES = {"f2": "f16", "f4": "f32", "f8": "f64", "c8": "c64", "c16": "c128", "b1": "bool"}
NAMES.update({"i%d" % n: "i%d" % (8 * n) for n in (1, 2, 4, 8)})
NAMES.update({"u%d" % n: "u%d" % (8 * n) for n in (1, 2, 4, 8)})


def row(a, dtype=None):
    le = np.ascontiguousarray(a.astype(a.dtype.newbyteorder("<")) if a.dtype.kind != "V" else a)
    return dtype or NAMES[a.dtype.str[1:]], a.shape, le.tobytes()


def oracle(name, rows):
    write_oracle(os.path.join(OUT, name + ".oracle"), rows)


def put(name, a, version=None, dtype=None, fortran=False):
    with open(os.path.join(OUT, name), "wb") as f, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.lib.format.write_array(f, np.asfortranarray(a) if fortran else a, version=version)
    oracle(name, {os.path.splitext(name)[0]: row(a, dtype)})


rng = np.random.default_rng(7)
put("case4.npy", np.arange(6, dtype="<f4").reshape(2, 3))      # the worked case: 152 bytes
put("v1.npy", rng.standard_normal((3, 5)).astype("<f4"), version=(1, 0))
put("v2.npy", rng.standard_normal((3, 5)).astype("<f8"), version=(2, 0))
put("v3.npy", rng.integers(-9, 9, (4, 2, 3)).astype("<i4"), version=(3, 0))
put("fortran.npy", rng.standard_normal((3, 4, 5)).astype("<f4"), fortran=True)
put("fortran_be.npy", rng.standard_normal((3, 4)).astype(">f8"), fortran=True)
put("scalar.npy", np.array(2.5, dtype="<f8"))
put("scalar_generic.npy", np.asarray(np.float32(1.25)))
put("empty.npy", np.zeros((0, 7), "<f4"))
put("empty_middle.npy", np.zeros((3, 0, 2), "<i8"))
put("rank1.npy", np.arange(1, dtype="<u2"))
put("rank8.npy", np.arange(256, dtype="u1").reshape((2,) * 8))
put("long_shape.npy", np.zeros((1,) * 32, "<f4"))
every = {}
for code in ("?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"):
    dt = np.dtype(code)
    if code == "?":
        a = np.array([[True, False, True], [False, True, True]])
    elif dt.kind in "iu":
        info = np.iinfo(dt)
        a = np.array([[info.min, info.max, 0], [1, 2, 3]], dt)
    elif dt.kind == "f":
        a = np.array([[-0.0, np.inf, -np.inf], [np.nan, np.finfo(dt).tiny, 1.5]], dt)
    else:
        a = np.array([[1 + 2j, -3j, complex(0, -0.0)], [complex(np.inf, np.nan), 4, 5]], dt)
    key = NAMES[dt.str[1:]]
    every[key] = a
    put("le_%s.npy" % key, a)
    if dt.itemsize > 1:
        put("be_%s.npy" % key, a.astype(dt.newbyteorder(">")))
put("void_bf16.npy", np.array([[1, -2.5, 3e38], [0.1, -0.0, np.nan]], ml_dtypes.bfloat16), dtype="bf16")
put("void_f8_e4m3fn.npy", np.array([[1, -2.5, 448], [0.1, -0.0, np.nan]], ml_dtypes.float8_e4m3fn),
    dtype="f8_e4m3fn")
np.savez(os.path.join(OUT, "stored.npz"), **every)
oracle("stored.npz", {k: row(a) for k, a in every.items()})
zipped = {"zeros": np.zeros((64, 64), "<f4"), "a/b": rng.standard_normal((8, 8)).astype(">f4"),
          "dot.name": np.arange(5), "fortran": np.asfortranarray(rng.standard_normal((3, 2)))}
np.savez_compressed(os.path.join(OUT, "deflated.npz"), **zipped)
oracle("deflated.npz", {k: row(a) for k, a in zipped.items()})
np.savez(os.path.join(OUT, "positional.npz"), np.arange(3), np.arange(4.0))
oracle("positional.npz", {"arr_0": row(np.arange(3)), "arr_1": row(np.arange(4.0))})
# an old writer's header: padded to 16, not 64 (numpy before 1.14)
old = io.BytesIO()
head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
head += b" " * (-(10 + len(head) + 1) % 16) + b"\n"
old.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + np.arange(6, dtype="<f4").tobytes())
open(os.path.join(OUT, "pad16.npy"), "wb").write(old.getvalue())
a = np.load(io.BytesIO(old.getvalue()))
oracle("pad16.npy", {"pad16": row(a)})
# to be refused: objects, structures, text, dates; also files that lie about their length
np.save(os.path.join(OUT, "refuse_object.npy"), np.array([1, "a", None], dtype=object))
np.save(os.path.join(OUT, "refuse_struct.npy"), np.zeros(3, dtype=[("x", "<f4"), ("y", "<i2", (2,))]))
np.save(os.path.join(OUT, "refuse_text.npy"), np.array(["ab", "c"]))
np.save(os.path.join(OUT, "refuse_date.npy"), np.array(["2020-01-01"], dtype="M8[D]"))
np.save(os.path.join(OUT, "refuse_longdouble.npy"), np.zeros(2, dtype=np.longdouble))
good = open(os.path.join(OUT, "case4.npy"), "rb").read()
open(os.path.join(OUT, "refuse_short.npy"), "wb").write(good[:-1])
versions("npy", "numpy", "ml_dtypes")
