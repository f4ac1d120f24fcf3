"""Round trips of `shard-ckpt convert`: digests against the oracles, logits of transformers before and after."""
import os
import shutil
import sys

import torch

from interop import check, command, data, digest_rows, main, oracle, same, temp, torch_rows

DENSE = ("llama", "llama_tied", "llama_mqa", "llama_even", "mistral", "qwen2", "qwen3", "gpt2", "gpt_neox")
MOE = ("mixtral", "qwen2_moe", "qwen3_moe")
# other forms of the same model (fused experts become one tensor per expert)
FORMS = {"mixtral_fused": "mixtral", "llama_sharded": "llama",
         "llama_v4_bin": "llama_even", "llama_v4_bins": "llama_even"}


def digest(path):
    return digest_rows(command("shard-ckpt", "digest", path))


def logits(path):
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(path, dtype="auto").eval()
    ids = torch.randint(0, model.config.vocab_size, (1, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return torch_rows(model.state_dict()), model(ids).logits


def digest_of(folder, model):
    same(digest(data(folder)), oracle("hf/" + model))


def chain(model, *layouts):
    """hf -> each layout -> hf: the digest never changes, nor do the logits."""
    here = data("hf/" + model)
    for i, layout in enumerate(layouts + ("hf",)):
        there = temp("%d" % i)
        command("shard-ckpt", "convert", "--to", layout, here, there)
        same(digest(there), oracle("hf/" + model))
        here = there
    before, after = logits(data("hf/" + model)), logits(here)
    same(after[0], before[0])
    assert torch.equal(before[1], after[1]), "logits differ"
    for side in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        if os.path.exists(data("hf/%s/%s" % (model, side))):
            assert os.path.exists(os.path.join(here, side)), "'%s' was not carried along" % side


def hub_cache():
    """A hub cache is a folder of symbolic links to blobs."""
    root = temp("models--org--name")
    snapshot = os.path.join(root, "snapshots", "0123456789abcdef0123456789abcdef01234567")
    for name in ("blobs", "refs", snapshot):
        os.makedirs(os.path.join(root, name))
    with open(os.path.join(root, "refs", "main"), "w") as f:
        f.write(os.path.basename(snapshot))
    for i, file in enumerate(sorted(os.listdir(data("hf/llama_sharded")))):
        blob = os.path.join(root, "blobs", "%040x" % i)
        shutil.copy(data("hf/llama_sharded/" + file), blob)
        os.symlink(os.path.join("..", "..", "blobs", os.path.basename(blob)), os.path.join(snapshot, file))
    out = temp("out")
    command("shard-ckpt", "convert", "--to", "hf", snapshot, out)
    same(digest(out), oracle("hf/llama"))


def from_megatron(variant):
    """A checkpoint of the real Megatron becomes the model that it was filled from."""
    out = temp("out")
    command("shard-ckpt", "convert", "--to", "hf", data("megatron/" + variant), out)
    same(digest(out), oracle("megatron/" + variant))


def from_meta(variant):
    out = temp("out")
    command("shard-ckpt", "convert", "--to", "hf", data("meta/" + variant), out)
    same(digest(out), oracle("meta/" + variant))


for model in DENSE + MOE:
    check("digest hf/" + model, "hf/" + model, model)(digest_of)
for form, model in FORMS.items():
    check("digest hf/" + form, "hf/" + form, model)(digest_of)
for model in DENSE:
    check("convert %s megatron tp2" % model, model, "megatron:tp=2")(chain)
for model in MOE:
    check("convert %s megatron ep2" % model, model, "megatron:ep=2")(chain)
    check("convert %s megatron tp2 ep2 pp2" % model, model, "megatron:tp=2,pp=2,ep=2")(chain)
check("convert llama_even megatron tp2 pp2, meta tp2", "llama_even", "megatron:tp=2,pp=2", "meta:tp=2")(chain)
check("convert llama megatron tp2 pp2", "llama", "megatron:tp=2,pp=2")(chain)
check("convert llama megatron pp2 vpp2", "llama", "megatron:pp=2,vpp=2")(chain)
check("convert llama megatron layers 3+1", "llama", "megatron:pp=2,layers=3+1")(chain)
check("convert llama megatron te", "llama", "megatron:tp=2,spec=te")(chain)
check("convert llama megatron legacy names", "llama", "megatron:tp=2,spec=legacy")(chain)
check("convert gpt2 megatron tp2 pp2 tied", "gpt2", "megatron:tp=2,pp=2")(chain)
check("convert llama meta", "llama", "meta")(chain)
check("convert hub cache")(hub_cache)
for kind, function in (("megatron", from_megatron), ("meta", from_meta)):
    for variant in sorted(os.listdir(data(kind))):
        if os.path.isdir(data(kind + "/" + variant)):
            check("convert %s/%s hf" % (kind, variant), variant)(function)

if __name__ == "__main__":
    sys.exit(main())
