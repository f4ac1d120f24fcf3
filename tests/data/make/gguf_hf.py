"""tests/data/gguf/hf: what llama.cpp's own convert_hf_to_gguf.py makes of tests/data/hf.

    LLAMA_CPP=/path/to/llama.cpp gguf_hf.py

One file is kept (llama.gguf); of every family there is the oracle of the tensors,
in the file's order and not by name, and the key-values as text: KEY TYPE JSON.
Things of the converter are replaced: a folder without a tokenizer gets none,
and our tiny tokenizer, which its list of known ones cannot have, counts as `gpt-2`.
transformers 5 no longer writes two keys that it wants (gpt2 n_ctx, gpt_neox rotary_pct):
they are added.  The file type is bf16: matrices keep or take it, vectors and norms become f32.
"""
import json
import os
import shutil
import sys
import tempfile
import zlib

LLAMA_CPP = os.environ["LLAMA_CPP"]
sys.path[:0] = [LLAMA_CPP, os.path.join(LLAMA_CPP, "gguf-py")]

import convert_hf_to_gguf as converter
from conversion import base
from gguf import GGUFReader, GGUFValueType

from common import DATA, folder, shape_text

OUT = folder("gguf/hf")
MODELS = ("llama", "llama_tied", "llama_mqa", "llama_even", "mistral", "gpt2", "gpt_neox", "qwen2", "qwen3", "mixtral",
          "qwen2_moe", "qwen3_moe")


def without_vocab(cls):
    cls.set_vocab = lambda self: None
    for sub in cls.__subclasses__():
        without_vocab(sub)


def plain(value):
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value.item() if hasattr(value, "item") else value


def convert(model):
    source = os.path.join(DATA, "hf", model)
    with tempfile.TemporaryDirectory() as tmp:
        work = os.path.join(tmp, model)         # the folder's name becomes general.name
        shutil.copytree(source, work)
        out = os.path.join(tmp, "out.gguf")
        sys.argv = ["convert_hf_to_gguf.py", work, "--outfile", out, "--outtype", "bf16"]
        converter.main()
        reader = GGUFReader(out)
        with open(os.path.join(OUT, model + ".oracle"), "w") as f:
            for t in reader.tensors:
                f.write("%08x %s %s %s\n" % (zlib.crc32(t.data.tobytes()), t.tensor_type.name.lower(),
                                             shape_text([int(n) for n in reversed(t.shape)]), t.name))
        with open(os.path.join(OUT, model + ".kv"), "w") as f:
            for key, field in reader.fields.items():
                if key.startswith("GGUF.") or key.startswith("tokenizer.") and model != "llama":
                    continue
                kind = ":".join(GGUFValueType(t).name.lower() for t in field.types)
                f.write("%s %s %s\n" % (key, kind, json.dumps(plain(field.contents()), ensure_ascii=False)))
        if model == "llama":
            shutil.copy(out, os.path.join(OUT, "llama.gguf"))


def hparams(*args, read=base.ModelBase.load_hparams, **named):
    h = read(*args, **named)
    if h["model_type"] == "gpt2":
        h["n_ctx"] = h["n_positions"]
    if h["model_type"] == "gpt_neox":
        h["rotary_pct"] = h["rope_parameters"]["partial_rotary_factor"]
    return h


base.ModelBase.load_hparams = staticmethod(hparams)
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
convert("llama")
without_vocab(base.TextModel)
for name in MODELS[1:]:
    try:
        convert(name)
    except BaseException as e:
        print(name, "FAILED", repr(e)[:300], file=sys.stderr)
with open(os.path.join(OUT, "VERSIONS"), "w") as f:
    f.write("llama.cpp as in the source package of llama-cpp-python 0.3.36\n")
