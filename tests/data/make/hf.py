"""tests/data/hf: tiny models saved by the real transformers library.

Weights are drawn from a seed; norms and biases too, so that no tensor is
constant.  Run with transformers 5 for every folder but `*_v4*`, which want
transformers 4 (`hf.py v4`): it still writes pytorch_model.bin.

  llama         GQA (4 heads, 2 groups), untied, odd vocabulary, bf16
  llama_tied    tied head, f32          llama_mqa   one group, bf16
  llama_sharded the weights of llama in shards with an index
  llama_v4_bin  the weights of llama_even as pytorch_model.bin, by transformers 4
  llama_v4_bins the same in shards with pytorch_model.bin.index.json
  llama_demo    4 layers, an even vocabulary, tokenizer and chat template: for the demo
  llama_even    GQA, untied, a vocabulary that two ranks share evenly: Meta's files have no padding
  mistral gpt2 gpt_neox qwen2 qwen3     dense families
  mixtral qwen2_moe qwen3_moe           one tensor per expert (the default form)
  gemma3 deepseek_v3                    families without a map: moved by their names
  mixtral_fused                         save_original_format=False: [E, ...] tensors
"""
import glob
import json
import os
import shutil
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM

from common import folder, torch_row, versions, write_oracle

OUT = folder("hf")
BF16, F32, F16 = torch.bfloat16, torch.float32, torch.float16
SIZES = {"vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "intermediate_size": 48,
         "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "decoder_sparse_step": 1}


def build(kind, seed, dtype, **sizes):
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, **sizes)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            p.normal_(1.0 if p.dim() == 1 and name.endswith("weight") else 0.0, 0.08)
    return model.to(dtype).eval()


def oracle(path):
    """The oracle of a saved folder: what its files hold, read by the real library."""
    from safetensors.torch import load_file
    rows = {}
    for f in sorted(glob.glob(path + "/*.safetensors")):
        rows.update({k: torch_row(t) for k, t in load_file(f).items()})
    for f in sorted(glob.glob(path + "/*.bin")):
        rows.update({k: torch_row(t) for k, t in torch.load(f, weights_only=True).items()})
    write_oracle(path + ".oracle", rows)


def save(name, model, **options):
    path = os.path.join(OUT, name)
    shutil.rmtree(path, ignore_errors=True)
    model.save_pretrained(path, **options)
    oracle(path)


def llama():
    return build("llama", 1, BF16, **dict(SIZES, num_hidden_layers=4, rope_theta=10000.0, pad_token_id=0))


def llama_even():
    return build("llama", 12, BF16, **dict(SIZES, vocab_size=128, rope_theta=500000.0))


def tokenizer(path):
    from tokenizers import Tokenizer, models, pre_tokenizers, decoders, trainers
    from transformers import PreTrainedTokenizerFast
    t = Tokenizer(models.BPE(unk_token=None))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    text = ["the quick brown fox jumps over the lazy dog", "tensors in shards, shards in files"] * 8
    t.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=101, special_tokens=["<pad>", "<s>", "</s>"], show_progress=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
                                   model_max_length=64)
    fast.chat_template = ("{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}"
                          "{% if add_generation_prompt %}<s>assistant: {% endif %}")
    fast.save_pretrained(path)
    print("tokenizer:", len(fast), "entries;", sorted(os.listdir(path)))


if sys.argv[1:] == ["v4"]:
    for name, options in (("llama_v4_bin", {}), ("llama_v4_bins", {"max_shard_size": "20KB"})):
        save(name, llama_even(), safe_serialization=False, **options)
    sys.exit()

save("llama", llama())
tokenizer(os.path.join(OUT, "llama"))
save("llama_sharded", llama(), max_shard_size="30KB")
save("llama_tied", build("llama", 2, F32, **dict(SIZES, num_hidden_layers=1, vocab_size=97, tie_word_embeddings=True)))
save("llama_mqa", build("llama", 3, BF16, **dict(SIZES, vocab_size=97, num_key_value_heads=1, rope_theta=500000.0)))
save("llama_even", llama_even())
save("llama_demo", build("llama", 13, BF16, **dict(SIZES, vocab_size=128, num_hidden_layers=4, pad_token_id=0)))
tokenizer(os.path.join(OUT, "llama_demo"))
save("mistral", build("mistral", 4, F16, **dict(SIZES, vocab_size=97, head_dim=16, sliding_window=16)))
save("qwen2", build("qwen2", 5, BF16, **dict(SIZES, vocab_size=97)))
save("qwen3", build("qwen3", 6, BF16, **dict(SIZES, vocab_size=97, head_dim=16)))
save("gpt2", build("gpt2", 7, F16, vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=4,
                   bos_token_id=1, eos_token_id=2))
save("gpt_neox", build("gpt_neox", 8, BF16, **{k: v for k, v in SIZES.items() if k != "num_key_value_heads"}))
mixtral = build("mixtral", 9, BF16, **dict(SIZES, vocab_size=97, intermediate_size=40, num_local_experts=4,
                                           num_experts_per_tok=2))
save("mixtral", mixtral)
save("mixtral_fused", mixtral, save_original_format=False)
save("qwen2_moe", build("qwen2_moe", 10, BF16,
                        **dict(SIZES, vocab_size=97, shared_expert_intermediate_size=40, **MOE)))
save("qwen3_moe", build("qwen3_moe", 11, BF16, **dict(SIZES, vocab_size=97, head_dim=16, **MOE)))
save("gemma3", build("gemma3_text", 14, BF16, **dict(SIZES, vocab_size=97, head_dim=8, pad_token_id=0,
                                                     tie_word_embeddings=True)))
save("deepseek_v3", build("deepseek_v3", 15, BF16, **dict(
    SIZES, vocab_size=97, num_key_value_heads=4, kv_lora_rank=8, q_lora_rank=12, qk_nope_head_dim=8,
    qk_rope_head_dim=4, v_head_dim=8, n_routed_experts=4, n_shared_experts=1, moe_intermediate_size=16,
    num_experts_per_tok=2, first_k_dense_replace=1, n_group=1, topk_group=1)))
for path in sorted(glob.glob(OUT + "/*/")):
    print("%-18s %s" % (os.path.basename(path[:-1]),
                        " ".join("%s:%d" % (f, os.path.getsize(path + f)) for f in sorted(os.listdir(path)))))
versions("hf", "transformers", "torch", "safetensors", "tokenizers",
         note="llama_v4_bin llama_v4_bins: transformers 4.57.6")
