"""Shared by the fixture scripts: the oracle writer and nothing else.

An oracle is text made by the producing library, never by our own tools: one
line per tensor, sorted by name (bytes of its UTF-8):

    CRC32 DTYPE SHAPE NAME

CRC32 is zlib's, 8 hex digits, of the tensor's little-endian bytes in C order;
DTYPE is the tensor stream's name; SHAPE is 4096x128, a scalar's is `-`.  Names
of nested objects are the path joined with `.`, list positions as numbers.
"""
import os
import sys
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.environ.get("TENSORUTILS_DATA", os.path.dirname(HERE))

# dtype names of torch that differ from the stream's
TORCH = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "bool": "bool", "complex64": "c64", "complex128": "c128",
    "float8_e4m3fn": "f8_e4m3fn", "float8_e5m2": "f8_e5m2",
    "float8_e4m3fnuz": "f8_e4m3fnuz", "float8_e5m2fnuz": "f8_e5m2fnuz",
    "float8_e8m0fnu": "f8_e8m0", "float4_e2m1fn_x2": "f4_e2m1",
}


def folder(kind):
    path = os.path.join(DATA, kind)
    os.makedirs(path, exist_ok=True)
    return path


def shape_text(shape):
    return "x".join(str(int(n)) for n in shape) if len(shape) else "-"


def write_oracle(path, rows):
    """rows: {name: (dtype, shape, bytes)}"""
    lines = ["%08x %s %s %s" % (zlib.crc32(data) & 0xFFFFFFFF, dtype, shape_text(shape), name)
             for name, (dtype, shape, data) in
             sorted(rows.items(), key=lambda item: item[0].encode())]
    with open(path, "w", encoding="utf-8") as f:
        f.write("".join(line + "\n" for line in lines))


def torch_bytes(t):
    import torch
    t = t.detach().cpu()
    if t.is_conj():
        t = t.resolve_conj()
    flat = torch.empty(t.shape, dtype=t.dtype)
    flat.copy_(t)
    if flat.numel() == 0:
        return b""
    return bytes(flat.reshape(-1).view(torch.uint8).numpy().tobytes()) if flat.dtype != torch.bool \
        else flat.reshape(-1).numpy().tobytes()


def torch_row(t):
    return TORCH[str(t.dtype).split(".")[1]], tuple(t.shape), torch_bytes(t)


def torch_walk(obj, path=""):
    """{joined path: tensor} of nested dicts, lists, tuples and Namespaces."""
    import torch
    if isinstance(obj, torch.Tensor):
        return {path: obj}
    if hasattr(obj, "__dict__") and type(obj).__name__ == "Namespace":
        obj = vars(obj)
    rows = {}
    if isinstance(obj, dict):
        pairs = [(str(k), v) for k, v in obj.items()]
    elif isinstance(obj, (list, tuple)):
        pairs = [(str(i), v) for i, v in enumerate(obj)]
    else:
        pairs = []
    for key, value in pairs:
        rows.update(torch_walk(value, path + "." + key if path else key))
    return rows


def torch_oracle(path, obj):
    write_oracle(path, {k: torch_row(t) for k, t in torch_walk(obj).items()})


def versions(kind, *modules, note=""):
    """VERSIONS: what wrote the files of a folder."""
    lines = ["python %d.%d.%d" % sys.version_info[:3]]
    for m in modules:
        try:
            from importlib.metadata import version
            lines.append("%s %s" % (m, version(m)))
        except Exception:
            lines.append("%s %s" % (m, __import__(m).__version__))
    if note:
        lines.append(note.strip())
    with open(os.path.join(folder(kind), "VERSIONS"), "w") as f:
        f.write("\n".join(lines) + "\n")
