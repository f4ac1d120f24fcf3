"""tests/data/peft: adapters that PEFT saved, and the models into which it merged them.

  plain     q, v, down with rank 4; another alpha for v in layer 1; the embedding
  wide      rank-stabilised scale, the norm at the end in modules_to_save
  dora      DoRA on every linear layer
  conv      GPT-2, whose weights are [in, out] (fan_in_fan_out)

X.merged.safetensors is merge_and_unload of X on the folder of hf that adapter_config.json
names; f32, so that only the order of sums differs.
"""
import os
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from common import folder, versions

OUT = folder("peft")
HF = os.path.join(os.path.dirname(OUT), "hf")
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def make(name, base, seed, **config):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(os.path.join(HF, base), dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **config))
    with torch.no_grad():
        for n, p in sorted(model.named_parameters()):
            if p.requires_grad and ("lora" in n or "modules_to_save" in n):
                p.add_(torch.randn_like(p) * 0.1)
    model.peft_config["default"].base_model_name_or_path = "../hf/" + base
    path = os.path.join(OUT, name)
    shutil.rmtree(path, ignore_errors=True)
    model.save_pretrained(path)
    os.remove(os.path.join(path, "README.md"))
    merged = model.merge_and_unload().state_dict()
    if merged.get("lm_head.weight") is not None and model.config.tie_word_embeddings:
        merged.pop("lm_head.weight")
    save_file({k: v.contiguous() for k, v in merged.items()}, path + ".merged.safetensors")
    for f in (path + ".merged.safetensors", os.path.join(path, "adapter_model.safetensors")):
        os.chmod(f, 0o644)


make("plain", "llama", 1, r=4, lora_alpha=8, alpha_pattern={"layers.1.self_attn.v_proj": 3},
     target_modules=["q_proj", "v_proj", "down_proj", "embed_tokens"])
make("wide", "llama_tied", 2, r=3, lora_alpha=5, use_rslora=True, target_modules=["k_proj", "up_proj"],
     modules_to_save=["norm"])
make("dora", "llama_tied", 3, r=2, lora_alpha=4, use_dora=True, target_modules=LINEAR)
make("conv", "gpt2", 4, r=2, lora_alpha=4, fan_in_fan_out=True, target_modules=["c_attn", "c_fc"])
versions("peft", "peft", "torch", "transformers", "safetensors")
