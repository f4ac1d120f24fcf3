"""tests/data/dcp: PyTorch's distributed checkpoints, by torch itself on gloo.

    dcp.py [VARIANT...]

FSDP2 (fully_shard) trains a small model for a few steps on processes of CPUs; model and
optimizer are saved by torch.distributed.checkpoint.  The oracle is the full state
dictionary gathered in memory, never read from the files; optimizer states have the names
of our streams (optim.exp_avg.NAME).
"""
import os
import shutil
import socket
import sys

import torch
from torch import nn

from common import folder, torch_oracle, versions

OUT = folder("dcp")
# name: (ranks, mesh, save)
VARIANTS = {
    "fsdp2_dp2": (2, (2,), "plain"),
    "fsdp2_dp4_bf16": (4, (4,), "plain"),
    "hsdp_2x2": (4, (2, 2), "plain"),
    "fsdp1_dp2": (2, (2,), "fsdp1"),
    "tp2_dp2": (4, (2, 2), "tp"),
    "hf_dp2": (2, (2,), "hf"),
}


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 7)
        self.first = nn.Linear(7, 13)
        self.norm = nn.LayerNorm(13)
        self.last = nn.Linear(13, 11, bias=False)
        self.register_buffer("seen", torch.arange(5, dtype=torch.float32))

    def forward(self, ids):
        return self.last(self.norm(torch.tanh(self.first(self.emb(ids)))))


class Wide(nn.Module):      # sizes that two tensor-parallel ranks divide
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(6, 10)
        self.down = nn.Linear(10, 6)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


def rank_main(rank, name, port):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    world, shape, how = VARIANTS[name]
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    names = ("dp",) if len(shape) == 1 else ("dp_r", "dp_s") if how != "tp" else ("dp", "tp")
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    torch.manual_seed(1)
    model = Wide() if how == "tp" else Toy()
    if name.endswith("bf16"):
        model = model.to(torch.bfloat16)
    if how == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        model = FSDP(model, use_orig_params=True, device_id=torch.device("cpu"))
    elif how == "tp":
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
    else:
        fully_shard(model.first, mesh=mesh)
        fully_shard(model, mesh=mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
    data = torch.Generator().manual_seed(7 + rank // (shape[-1] if how == "tp" else 1))
    for _ in range(3):
        if how == "tp":
            loss = model(torch.randn(4, 6, generator=data)).square().mean()
        else:
            ids = torch.randint(0, 11, (1, 6), generator=data)
            loss = nn.functional.cross_entropy(model(ids).float().flatten(0, 1), ids.flatten())
        loss.backward()
        opt.step()
        opt.zero_grad()
    sharded = get_state_dict(model, opt)
    full = get_state_dict(model, opt, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    root = os.path.join(OUT, name)
    if how == "hf":
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
        os.makedirs(root, exist_ok=True)
        dcp.save(sharded[0], storage_writer=HuggingFaceStorageWriter(root, save_distributed=True))
        if rank == 0:
            torch_oracle(root + ".oracle", dict(full[0]))
        dist.barrier()
        return dist.destroy_process_group()
    dcp.save({"model": sharded[0], "optim": sharded[1], "step": 3}, checkpoint_id=root)
    if rank == 0:
        rows = dict(full[0])
        for p, states in full[1]["state"].items():
            for s, t in states.items():
                if s != "step":
                    rows["optim.%s.%s" % (s, p)] = t
        if how == "fsdp1":      # its full states are not what it saves: torch's own reader tells
            from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
            dcp_to_torch_save(root, root + ".pt")
            saved = torch.load(root + ".pt", weights_only=False)
            os.remove(root + ".pt")
            rows = dict(saved["model"])
            for p, states in saved["optim"]["state"].items():
                rows.update(("optim.%s.%s" % (s, p), t) for s, t in states.items() if s != "step")
        torch_oracle(root + ".oracle", rows)
    dist.barrier()
    dist.destroy_process_group()


def main(names):
    for name in names or VARIANTS:
        shutil.rmtree(os.path.join(OUT, name), ignore_errors=True)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        try:
            torch.multiprocessing.spawn(rank_main, (name, port), nprocs=VARIANTS[name][0])
            print(name)
        except Exception as e:
            print(name, "FAILED", str(e)[-2500:], file=sys.stderr)
    versions("dcp", "torch")


if __name__ == "__main__":
    main(sys.argv[1:])
