"""What `tns-export` writes, read by the real libraries and compared with the oracles."""
import json
import os
import re
import sys

import ml_dtypes
import numpy as np
import torch

from interop import check, command, data, main, oracle, row, same, stream, temp, torch_rows

SAFETENSORS = ("safetensors/case1.safetensors", "safetensors/empty.safetensors", "safetensors/scalars.safetensors",
               "safetensors/zero.safetensors", "safetensors/dtypes.safetensors",
               "safetensors/hand_unaligned.safetensors", "torch/new_views.pt", "torch/old_views_legacy.pt",
               "torch/new_training.pt", "npy/deflated.npz", "gguf/plain.gguf", "hf/llama/model.safetensors")
TORCH_TOO = ("torch/new_dtypes.pt", "torch/new_dtypes_v3.pt", "torch/old_dtypes_legacy.pt", "npy/stored.npz")
NPZ = ("npy/stored.npz", "npy/deflated.npz", "npy/positional.npz", "torch/new_views.pt", "torch/new_list.pt")
GGUF = ("gguf/kv.gguf", "gguf/plain.gguf", "gguf/encoded.gguf", "gguf/blocks.gguf", "gguf/align64.gguf", "gguf/v2.gguf",
        "gguf/hf/llama.gguf")
NUMPY = {"f2": "f16", "f4": "f32", "f8": "f64", "c8": "c64", "c16": "c128", "b1": "bool"}
NUMPY.update({"%s%d" % (k, n): "%s%d" % (k, 8 * n) for k in "iu" for n in (1, 2, 4, 8)})


def wanted(name):
    folder, file = os.path.split(name)
    if folder.startswith("hf/"):        # the oracle of a folder stands beside it
        return oracle(folder)
    if folder == "gguf/hf":
        return oracle(os.path.splitext(name)[0])
    return oracle(name)


def exported(name, kind, suffix):
    out = temp("out" + suffix)
    command("tns-export", "--to", kind, "-o", out, stream(data(name)))
    return out


def numpy_row(a):
    if a.dtype.kind == "V":
        a = a.view(ml_dtypes.bfloat16)
        return row("bf16", a.shape, a.tobytes())
    return row(NUMPY[a.dtype.str[1:]], a.shape, np.ascontiguousarray(a.astype(a.dtype.newbyteorder("<"))).tobytes())


def to_safetensors(name):
    from safetensors.torch import load_file
    same(torch_rows(load_file(exported(name, "safetensors", ".safetensors"))), wanted(name))


def to_torch(name):
    got = torch.load(exported(name, "torch", ".pt"), weights_only=True)
    for t in got.values():
        assert t.is_contiguous()
    same(torch_rows(got), wanted(name))


def to_npz(name):
    with np.load(exported(name, "npz", ".npz"), allow_pickle=False) as z:
        same({k: numpy_row(z[k]) for k in z.files}, wanted(name))


def to_npy(name):
    want = wanted(name)
    a = np.load(exported(name, "npy", ".npy"), allow_pickle=False)
    same({next(iter(want)): numpy_row(a)}, want)


def gguf_rows(reader):
    return {t.name: row(t.tensor_type.name.lower(), tuple(int(n) for n in reversed(t.shape)), t.data.tobytes())
            for t in reader.tensors}


def to_gguf(name):
    from gguf import GGUFReader
    got, want = GGUFReader(exported(name, "gguf", ".gguf")), GGUFReader(data(name))
    same(gguf_rows(got), wanted(name))
    fields = [{k: (f.types, f.contents()) for k, f in r.fields.items() if not k.startswith("GGUF.")}
              for r in (got, want)]
    for side in fields:                 # we always align to 32
        side.pop("general.alignment", None)
    assert fields[0] == fields[1], "key-values differ: %s" % sorted(
        k for k in fields[0].keys() | fields[1].keys() if fields[0].get(k) != fields[1].get(k))
    assert [t.name for t in got.tensors] == [t.name for t in want.tensors], "another order of tensors"


def to_hf(name):
    """`shard-ckpt cat` of a folder, exported again: transformers loads equal weights and logits."""
    from transformers import AutoModelForCausalLM
    tns, out = temp("in.tns"), temp("out")
    with open(tns, "wb") as f:
        command("shard-ckpt", "cat", data("hf/" + name), stdout=f)
    command("tns-export", "--to", "hf", "-o", out, tns)
    logits(AutoModelForCausalLM.from_pretrained(out, dtype="auto"),
           AutoModelForCausalLM.from_pretrained(data("hf/" + name), dtype="auto"))


def cat_gguf(name):
    """`shard-ckpt cat --to gguf` against what llama.cpp's own converter makes of the same folder."""
    from gguf import GGUFReader, GGUFValueType
    tns, out = temp("in.tns"), temp("out.gguf")
    with open(tns, "wb") as f:
        command("shard-ckpt", "cat", "--to", "gguf", data("hf/" + name), stdout=f)
    want = oracle("gguf/hf/" + name)
    # The converter was asked for bf16; we keep what the folder has.
    casts = [w for n, r in want.items() if r[1] == "bf16" for w in ("-d", "^" + re.escape(n) + "$=bf16")]
    with open(temp("cast.tns"), "wb") as f:
        command("tns-cat", *casts, tns, stdout=f)
    command("tns-export", "--to", "gguf", "-o", out, temp("cast.tns"))
    reader = GGUFReader(out)
    same(gguf_rows(reader), want)
    keys = {}
    with open(data("gguf/hf/%s.kv" % name), encoding="utf-8") as f:
        for line in f:
            key, kind, text = line.rstrip("\n").split(" ", 2)
            keys[key] = (kind, json.loads(text))
    for key, (kind, value) in keys.items():
        if key.startswith("general.") and key != "general.architecture":
            continue                    # its name, size label and file type are the converter's own
        assert key in reader.fields, "no key '%s'" % key
        field = reader.fields[key]
        assert ":".join(GGUFValueType(t).name.lower() for t in field.types) == kind, "type of '%s'" % key
        assert field.contents() == value, "'%s' is %r, expected %r" % (key, field.contents(), value)


def logits(got, want):
    ids = torch.randint(0, want.config.vocab_size, (1, 12), generator=torch.Generator().manual_seed(1))
    same(torch_rows(got.state_dict()), torch_rows(want.state_dict()))
    with torch.no_grad():
        assert torch.equal(got.eval()(ids).logits, want.eval()(ids).logits), "logits differ"


for source in SAFETENSORS:
    check("export safetensors " + source, source)(to_safetensors)
for source in SAFETENSORS + TORCH_TOO:
    check("export torch " + source, source)(to_torch)
for source in NPZ:
    check("export npz " + source, source)(to_npz)
for source in sorted(os.listdir(data("npy"))):
    if source.endswith(".npy") and not source.startswith(("refuse", "void")):
        check("export npy npy/" + source, "npy/" + source)(to_npy)
for source in GGUF:
    check("export gguf " + source, source)(to_gguf)
for source in ("llama", "llama_tied", "gpt2", "mixtral"):
    check("export hf hf/" + source, source)(to_hf)

for source in sorted(os.listdir(data("gguf/hf"))):
    if source.endswith(".kv"):
        check("export gguf hf/" + source[:-3], source[:-3])(cat_gguf)

if __name__ == "__main__":
    sys.exit(main())
