"""Adapters: PEFT loads what `shard-ckpt lora-extract` wrote and merges it as `lora-merge` does."""
import torch

from interop import Skip, check, command, data, main, temp

TUNED = {"llama": "plain", "gpt2": "conv"}


@check("extracted and merged", "llama")
@check("extracted and merged", "gpt2")
def extracted(base):
    try:
        from peft import PeftModel
    except ImportError as e:
        raise Skip(str(e)) from e
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM
    tuned, adapter, merged = data("peft/%s.merged.safetensors" % TUNED[base]), temp("adapter"), temp("merged")
    command("shard-ckpt", "lora-extract", "--rank", "4", data("hf/" + base), tuned, adapter)
    command("shard-ckpt", "lora-merge", "--dtype", "f32", data("hf/" + base), adapter, merged)
    model = AutoModelForCausalLM.from_pretrained(data("hf/" + base), dtype=torch.float32)
    theirs = PeftModel.from_pretrained(model, adapter).merge_and_unload().state_dict()
    ours = load_file(merged + "/model.safetensors")
    for name, tensor in ours.items():
        assert torch.allclose(tensor, theirs[name], atol=1e-6), "'%s' differs" % name


main()
