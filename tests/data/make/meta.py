"""tests/data/meta: `consolidated.NN.pth` and params.json as Meta released llama.

    meta.py          writes the files from tests/data/hf by this script
    meta.py check    (transformers 4.46, the last with the script) converts them
                     back with the real convert_llama_weights_to_hf.py and compares

Meta's own writer is not public in runnable form, so these come from this script:
names, the split of each tensor and the inverse of the rotary permutation of
transformers' convert_llama_weights_to_hf.py (w.view(heads, d/2, 2, in), middle
axes swapped).  llama2_*: tok_embeddings on dim 1; llama3_*: on dim 0.
"""
import json
import os
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file

from common import DATA, folder, torch_oracle, torch_row, versions

OUT = folder("meta")
ROW, COLUMN, WHOLE = 1, 0, None
NAMES = {"self_attn.q_proj": ("attention.wq", COLUMN), "self_attn.k_proj": ("attention.wk", COLUMN),
         "self_attn.v_proj": ("attention.wv", COLUMN), "self_attn.o_proj": ("attention.wo", ROW),
         "mlp.gate_proj": ("feed_forward.w1", COLUMN), "mlp.down_proj": ("feed_forward.w2", ROW),
         "mlp.up_proj": ("feed_forward.w3", COLUMN), "input_layernorm": ("attention_norm", WHOLE),
         "post_attention_layernorm": ("ffn_norm", WHOLE)}
# name: (hf folder, shards, version)
VARIANTS = {"llama2_1": ("llama_mqa", 1, "2"), "llama2_2": ("llama_even", 2, "2"), "llama3_2": ("llama_even", 2, "3")}


def unpermute(w, heads):
    d, inner = w.shape[0] // heads, w.shape[1]
    return w.view(heads, 2, d // 2, inner).transpose(1, 2).reshape(w.shape)


def cut(t, dim, shards, i):
    return t.clone() if dim is None else t.chunk(shards, dim)[i].contiguous().clone()


def write(name, source, shards, version):
    c = json.load(open(os.path.join(DATA, "hf", source, "config.json")))
    state = load_file(os.path.join(DATA, "hf", source, "model.safetensors"))
    heads, groups, dim = c["num_attention_heads"], c["num_key_value_heads"], c["hidden_size"]
    d = dim // heads
    root = os.path.join(OUT, name)
    os.makedirs(root, exist_ok=True)
    for i in range(shards):
        out = {"tok_embeddings.weight": cut(state["model.embed_tokens.weight"], 0 if version == "3" else 1, shards, i),
               "norm.weight": state["model.norm.weight"].clone(),
               "output.weight": cut(state["lm_head.weight"], 0, shards, i)}
        for layer in range(c["num_hidden_layers"]):
            for hf, (meta, how) in NAMES.items():
                t = state["model.layers.%d.%s.weight" % (layer, hf)]
                if meta in ("attention.wq", "attention.wk"):
                    t = unpermute(t, heads if meta == "attention.wq" else groups)
                out["layers.%d.%s.weight" % (layer, meta)] = cut(t, how, shards, i)
        theta = c["rope_parameters"]["rope_theta"]
        out["rope.freqs"] = (1.0 / (theta ** (torch.arange(0, d, 2).float() / d))).to(torch.bfloat16)
        file = os.path.join(root, "consolidated.%02d.pth" % i)
        torch.save(out, file)
        torch_oracle("%s.%02d.oracle" % (root, i), out)
    # 16 * ceil(int(0.5 * int(8 * 32 / 3)) / 16) = 48 = intermediate_size
    params = {"dim": dim, "n_layers": c["num_hidden_layers"], "n_heads": heads, "n_kv_heads": groups,
              "vocab_size": c["vocab_size"] if version == "3" else -1, "multiple_of": 16, "ffn_dim_multiplier": 0.5,
              "norm_eps": c["rms_norm_eps"]}
    if theta != 10000.0:
        params["rope_theta"] = theta
    json.dump(params, open(os.path.join(root, "params.json"), "w"))
    shutil.copy(os.path.join(DATA, "hf", source + ".oracle"), root + ".oracle")


def check(name, source, shards, version):
    from transformers.models.llama.convert_llama_weights_to_hf import write_model
    want = load_file(os.path.join(DATA, "hf", source, "model.safetensors"))
    with tempfile.TemporaryDirectory() as tmp:
        write_model(tmp, os.path.join(OUT, name), llama_version=version, num_shards=shards,
                    vocab_size=want["lm_head.weight"].shape[0])
        got = load_file(os.path.join(tmp, "model.safetensors"))
    got = {k: v for k, v in got.items() if "inv_freq" not in k}
    assert set(got) == set(want), set(got) ^ set(want)
    for k in want:
        assert torch_row(got[k]) == torch_row(want[k]), k
    print("%s: the real converter gives back %s, %d tensors" % (name, source, len(want)))


if __name__ == "__main__":
    for name, spec in VARIANTS.items():
        (check if sys.argv[1:] == ["check"] else write)(name, *spec)
    if sys.argv[1:] != ["check"]:
        versions("meta", "torch", note="checked with convert_llama_weights_to_hf.py of transformers 4.46.3")
