"""tests/data/torch_dist: distributed checkpoints by Megatron-core's dist_checkpointing.

    MEGATRON_LM=/path/to/Megatron-LM megatron_dist.py [VARIANT...]

The ranks are those of megatron_legacy.py; `sharded_state_dict` of the real GPTModel says
how tensors are cut, `dist_checkpointing.save` writes them.  The optimizer's tensors are
random and go through Megatron's own `make_sharded_optimizer_tensor`.
"""
import os
import shutil
import sys

import torch

sys.path.insert(0, os.environ.get("MEGATRON_LM", ""))
import megatron_legacy as legacy
from common import DATA, folder, torch_row, versions, write_oracle

OUT = folder("torch_dist")
# The one in the tree; the others are made on request.
COMMITTED = ("llama_tp2_pp2",)
# name: the variant of megatron_legacy, optimizer states
VARIANTS = {
    "llama_tp2_pp2": ("llama_tp2_pp2", True),
    "mixtral_ep2": ("mixtral_ep2", True),
    "qwen2_tp2": ("qwen2_tp2", False),
}
STATES = ("exp_avg", "exp_avg_sq", "fp32_param")


def save(variant, args, chunks, parallel):
    name = next(n for n, (v, _) in VARIANTS.items() if v == variant)
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.optimizer import make_sharded_optimizer_tensor
    from megatron.core.dist_checkpointing.mapping import ShardedTensor
    torch.cuda.synchronize = lambda *_: None
    root = os.path.join(OUT, name, "iter_%07d" % legacy.ITERATION)
    state = chunks[0].sharded_state_dict()
    if WITH[name]:
        extra = {}
        for key, sh in state.items():
            if not isinstance(sh, ShardedTensor):
                continue
            for s in STATES:
                g = torch.Generator().manual_seed(sum((s + sh.key).encode()) + 1)
                whole = torch.randn(sh.global_shape, generator=g)
                p = sh.prepend_axis_num
                cut = whole[tuple(sh.global_offset[:p])][
                    tuple(slice(o, o + n) for o, n in zip(sh.global_offset[p:], sh.local_shape))]
                t = cut.contiguous().clone()
                extra["optimizer.%s.%s" % (s, key)] = make_sharded_optimizer_tensor(
                    sh, t, prefix="optimizer.state." + s)
        state.update(extra)
    state["iteration"] = legacy.ITERATION
    state["args"] = args
    state["checkpoint_version"] = 3.0
    if torch.distributed.get_rank() == 0:
        os.makedirs(root, exist_ok=True)
    torch.distributed.barrier()
    dist_checkpointing.save(state, root)
    if torch.distributed.get_rank() == 0:
        with open(os.path.join(OUT, name, "latest_checkpointed_iteration.txt"), "w") as f:
            f.write(str(legacy.ITERATION))


WITH = {name: with_states for name, (_, with_states) in VARIANTS.items()}


def main(names):
    for name in names or COMMITTED:
        shutil.rmtree(os.path.join(OUT, name), ignore_errors=True)
        variant = VARIANTS[name][0]
        try:
            legacy.world_of(variant, save)
        except Exception as e:
            print(name, "FAILED", str(e)[-2500:], file=sys.stderr)
            continue
        shutil.copy(os.path.join(DATA, "hf", legacy.VARIANTS[variant][0] + ".oracle"), os.path.join(OUT, name + ".oracle"))
    versions("torch_dist", "torch", note="Megatron-LM core_v0.16.1 (megatron.core)")


if __name__ == "__main__":
    main(sys.argv[1:])
