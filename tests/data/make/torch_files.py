"""tests/data/torch: files written by torch.save.

Run with a current torch (`torch_files.py new`) and with Debian 12's torch 1.13
(`torch_files.py old`); the file names start with that word.  Every file has an
oracle but those that a reader is to refuse (`*refuse*`).
"""
import argparse
import collections
import io
import os
import pickle
import sys
import tarfile
import types
import zipfile

import numpy as np
import torch

from common import folder, torch_oracle, versions

AGE = sys.argv[1]
OUT = folder("torch")
LEGACY = {"_use_new_zipfile_serialization": False}


def path_of(name):
    return os.path.join(OUT, AGE + "_" + name)


def put(name, obj, oracle=True, **options):
    torch.save(obj, path_of(name), **options)
    if oracle:
        torch_oracle(path_of(name) + ".oracle", obj)


def put_at(folder_name, name, obj):
    """Saved as `folder_name.pt`, since torch names the folder after the file."""
    os.chdir(OUT)
    torch.save(obj, folder_name + ".pt")
    os.rename(folder_name + ".pt", path_of(name))
    torch_oracle(path_of(name) + ".oracle", obj)


torch.manual_seed(11)
case = {"w": torch.arange(6, dtype=torch.float32).reshape(2, 3)}
put_at("a", "case2.pt", case)                       # the worked case 2
put("case3_legacy.pt", case, **LEGACY)              # the worked case 3

stream = io.BytesIO()
torch.save(case, stream)
open(path_of("archive.pt"), "wb").write(stream.getvalue())
torch_oracle(path_of("archive.pt") + ".oracle", case)

base = torch.arange(60, dtype=torch.float32).reshape(5, 12)
strided = collections.OrderedDict([
    ("whole", base), ("transposed", base.t()), ("row", base[2]), ("column", base[:, 3]),
    ("block", base[1:4, 2:9]), ("step", base[::2, ::3]), ("permuted", base.reshape(5, 3, 4).permute(2, 0, 1)),
    ("expanded", base[0:1, 0:4].expand(3, 4)), ("expanded_scalar", torch.tensor(7.5).expand(2, 2)),
    ("diagonal", base[:, :5].diagonal()), ("tail", base.reshape(-1)[59:]),
    ("overlap", base.as_strided((4, 6), (3, 1), 2)), ("none_of_it", base[5:]), ("again", base)])
put("views.pt", strided)
put("views_legacy.pt", strided, **LEGACY)

small = torch.randn(1000)[10:13]                    # a small view keeps its storage
put("small_view.pt", {"v": small})

special = torch.tensor([[0.0, -0.0, float("inf")], [float("-inf"), float("nan"), 1.5]])
dtypes = {}
for t in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
    dtypes[str(t)[6:]] = special.to(t)
for t in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
    dtypes[str(t)[6:]] = torch.tensor([torch.iinfo(t).min, torch.iinfo(t).max, 1], dtype=torch.int64).to(t)
dtypes["bool"] = torch.tensor([True, False, True])
dtypes["complex64"] = torch.tensor([1 + 2j, -3j], dtype=torch.complex64)
dtypes["complex128"] = torch.tensor([1 + 2j, -3j], dtype=torch.complex128)
dtypes["scalar"] = torch.tensor(3.25)
dtypes["scalar_i64"] = torch.tensor(-5)
dtypes["zero"] = torch.zeros(0)
dtypes["zero_rows"] = torch.zeros(0, 7, dtype=torch.bfloat16)
dtypes["zero_middle"] = torch.zeros(3, 0, 2, dtype=torch.int64)
put("dtypes.pt", dtypes)
put("dtypes_legacy.pt", dtypes, **LEGACY)
if AGE == "new":
    v3 = {}
    for t in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
        v3[str(t)[6:]] = special.to(t)
    v3["float8_e4m3fn_t"] = special.to(torch.float8_e4m3fn).t()
    v3["float8_e8m0fnu"] = torch.tensor([1.0, 2.0, 0.25, float("nan")]).to(torch.float8_e8m0fnu)
    for t in (torch.uint16, torch.uint32, torch.uint64):
        v3[str(t)[6:]] = torch.tensor([0, torch.iinfo(t).max, 1], dtype=torch.uint64).to(t)
    put("dtypes_v3.pt", v3)

model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2, bias=False))
model(torch.randn(5, 4)).sum().backward()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
optimizer.step()
namespace = argparse.Namespace(
    num_layers=4, hidden_size=32, lr=1.5e-4, negative=-3, big=2**40, huge=2**70, minus_huge=-2**70,
    yes=True, no=False, nothing=None, text="naïve\n",
    params_dtype=torch.bfloat16, nested=argparse.Namespace(deep=[1, (2, 3), {"k": "v"}], tensor=torch.ones(2)),
    simple=types.SimpleNamespace(a=1), size=torch.Size([2, 3]), device=torch.device("cpu"), data=b"\x00\xff",
    names={"b", "a"}, pair=(1, 2), four=(1, 2, 3, 4), lists=[[], [1], (), {}], layout=torch.strided,
    complex=1 + 2j, array=bytearray(b"xyz"))
put("training.pt", {
    "args": namespace, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "iteration": 7,
    "parameter": torch.nn.Parameter(torch.ones(2, 2)), "parameters": list(model.parameters()),
    "buffers": collections.defaultdict(list, {"x": [torch.zeros(1)]}), "rng": torch.get_rng_state()[:16].clone(),
    "counter": collections.Counter("aab"), 5: torch.tensor([5]), "grad": torch.ones(3, requires_grad=True)})
with_numpy = {"scalar": np.float32(1.5), "int": np.int64(3), "array": np.arange(6, dtype="<f4").reshape(2, 3),
              "fortran": np.asfortranarray(np.arange(6, dtype="<i8").reshape(2, 3)), "w": torch.ones(2)}
put("numpy.pt", with_numpy)
put("list.pt", [torch.ones(1), (torch.zeros(2), {"x": torch.ones(3)})])
put("bare.pt", torch.arange(4))
put("no_tensors.pt", {"a": 1, "b": "two"})
put("protocol4.pt", case, pickle_protocol=4)
put("protocol5.pt", case, pickle_protocol=5)
for protocol in (3, 4):
    put(f"legacy_protocol{protocol}.pt", case, pickle_protocol=protocol, **LEGACY)
attribute = torch.ones(2, 2)
put("module_refuse.pt", torch.nn.Linear(2, 2), oracle=False)    # a pickled class, no state dict
sparse = torch.eye(3).to_sparse()
put("sparse_refuse.pt", {"s": sparse, "w": torch.ones(2)}, oracle=False)
put("quantized_refuse.pt", {"q": torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)}, oracle=False)
put("conj.pt", {"c": torch.tensor([1 + 2j, 3 - 4j]).conj()}, oracle=False)
torch_oracle(path_of("conj.pt") + ".oracle", {"c": torch.load(path_of("conj.pt"))["c"].resolve_conj()})
put("meta_refuse.pt", {"m": torch.zeros(2, 3, device="meta")}, oracle=False)

torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path_of("torchscript_refuse.pt"))

# the same file packed again by another writer: deflated, other entry order
with zipfile.ZipFile(path_of("views.pt")) as src, \
        zipfile.ZipFile(path_of("deflated.pt"), "w", zipfile.ZIP_DEFLATED) as dst:
    for info in src.infolist():
        dst.writestr(zipfile.ZipInfo(info.filename), src.read(info), zipfile.ZIP_DEFLATED)
torch_oracle(path_of("deflated.pt") + ".oracle", torch.load(path_of("deflated.pt")))

if AGE == "old":
    with open(path_of("pickle_refuse.pt"), "wb") as f:     # a bare pickle, no tensors
        pickle.dump({"a": 1}, f, 2)
    # the tar of torch 0.1, built as torch.serialization._load's legacy_load reads it
    parts = {
        "storages": pickle.dumps(1, 2) + pickle.dumps((0, "cpu", "FloatStorage"), 2)
        + (4).to_bytes(8, "little") + np.arange(4, dtype="<f4").tobytes() + pickle.dumps([], 2),
        "tensors": pickle.dumps(0, 2), "pickle": pickle.dumps({"a": 1}, 2),
        "sys_info": pickle.dumps({"protocol_version": 1000, "little_endian": True, "type_sizes": {}}, 2)}
    with tarfile.open(path_of("tar_refuse.pt"), "w") as tar:
        for name in ("sys_info", "pickle", "tensors", "storages"):
            info = tarfile.TarInfo(name)
            info.size = len(parts[name])
            tar.addfile(info, io.BytesIO(parts[name]))
    with open(path_of("system_refuse.pt"), "wb") as f:     # would run a command if it were unpickled
        f.write(bytes.fromhex("800263706f7369780a73797374656d0a58020000006964 85522e".replace(" ", "")))
elif torch.distributed.is_available():
    import socket
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor, init_device_mesh
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    local = torch.arange(12, dtype=torch.float32).reshape(4, 3)
    put("dtensor.pt", {"d": distribute_tensor(local, mesh, [Shard(0)]), "w": torch.ones(2)}, oracle=False)
    torch_oracle(path_of("dtensor.pt") + ".oracle", {"d": local, "w": torch.ones(2)})
    torch.distributed.destroy_process_group()
with open(os.path.join(OUT, "VERSIONS." + AGE), "w") as f:
    f.write("python %d.%d.%d\ntorch %s\nnumpy %s\n" % (sys.version_info[:3] + (torch.__version__, np.__version__)))
