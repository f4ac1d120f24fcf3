"""tests/data/deepspeed: ZeRO checkpoints by DeepSpeed itself, on CPU processes.

    deepspeed_zero.py [VARIANT...]

Every variant trains a small model for a few steps on a gloo world and saves it.  The
oracle beside a folder is what the engine held in memory when it saved, asked through
DeepSpeed's own `safe_get_full_*`; it is not read from the files.  Names of the oracle:

    NAME                   the weight that the model computes with
    optim.fp32.NAME        the master copy
    optim.exp_avg.NAME     Adam's moments, optim.exp_avg_sq.NAME

`ds_to_universal` then makes NAME.universal of each that it can convert.
"""
import os
import re
import shutil
import socket
import subprocess
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch
from torch import nn

from common import folder, torch_oracle, versions

OUT = folder("deepspeed")

# name: (model, stage, ranks, dtype, more)
VARIANTS = {
    "toy_z1_dp2": ("toy", 1, 2, "bf16", {}),
    "toy_z1_dp4_fp32": ("toy", 1, 4, "fp32", {}),
    "toy_z2_dp4": ("toy", 2, 4, "bf16", {}),
    "toy_z2_dp2_fp16": ("toy", 2, 2, "fp16", {}),
    "toy_z3_dp2": ("toy", 3, 2, "bf16", {}),
    "toy_z3_dp4_fp32": ("toy", 3, 4, "fp32", {}),
    "three_z1_dp4": ("three", 1, 4, "bf16", {}),        # a parameter of three elements
    "llama_z1_dp2": ("llama", 1, 2, "bf16", {}),
    "llama_z3_dp4": ("llama", 3, 4, "bf16", {}),
    "tp2_z1_dp2": ("tp", 1, 4, "bf16", {"tp": 2}),
    "tp2_z2_dp1": ("tp", 2, 2, "bf16", {"tp": 2}),
    "pipe_pp2_dp2": ("pipe", 1, 4, "bf16", {}),         # layer files, an embedding tied to the head
    "moe_z1_ep2_dp4": ("moe", 1, 4, "bf16", {}),        # expert files: two experts on each of two ranks, twice
    "moe_z2_ep2_dp2": ("moe", 2, 2, "bf16", {}),
}


# The converter's output is kept for these.
UNIVERSAL = ("pipe_pp2_dp2", "toy_z1_dp2", "toy_z3_dp2", "tp2_z1_dp2")


class Toy(nn.Module):
    """Sizes that no number of ranks divides, a frozen weight, a buffer, a scalar."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 7)
        self.first = nn.Linear(7, 13)
        self.frozen = nn.Linear(13, 13, bias=False)
        self.frozen.weight.requires_grad_(False)
        self.norm = nn.LayerNorm(13)
        self.last = nn.Linear(13, 11, bias=False)
        self.register_buffer("seen", torch.arange(5, dtype=torch.float32))

    def forward(self, ids):
        x = torch.tanh(self.first(self.emb(ids)))
        return self.last(self.norm(self.frozen(x)))


class Three(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.linspace(-1, 1, 3))

    def forward(self, ids):
        return (ids[..., None] % 3 == torch.arange(3)) * self.a


class Tied(nn.Embedding):
    def __init__(self):
        super().__init__(11, 7)


def pipe():
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec

    def loss(out, labels):
        return nn.functional.cross_entropy(out.float().flatten(0, 1), labels.flatten())
    return PipelineModule(
        [TiedLayerSpec("word", Tied), LayerSpec(nn.Linear, 7, 13), torch.tanh, LayerSpec(nn.LayerNorm, 13),
         LayerSpec(nn.Linear, 13, 7),
         TiedLayerSpec("word", Tied, forward_fn=lambda m, x: x @ m.weight.t())],
        num_stages=2, loss_fn=loss, partition_method="uniform")


class Moe(nn.Module):
    def __init__(self):
        super().__init__()
        from deepspeed.moe.layer import MoE
        self.emb = nn.Embedding(11, 8)
        self.moe = MoE(8, nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 8)), num_experts=4, ep_size=2, k=1,
                       drop_tokens=False)
        self.last = nn.Linear(8, 11, bias=False)

    def forward(self, ids):
        return self.last(self.moe(self.emb(ids))[0])


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=4, vocab_size=37, max_position_embeddings=32, tie_word_embeddings=False))


# Pieces of a tensor-parallel model, cut by hand; the whole is `TP_WHOLE`.
TP_WHOLE = {"word.weight": (10, 6), "norm.weight": (6,), "up.weight": (8, 6), "up.bias": (8,), "down.weight": (6, 4),
            "gated.weight": (12, 6), "qkv.weight": (16, 6)}


def tp_whole(name):
    g = torch.Generator().manual_seed(sum(name.encode()))
    return torch.randn(TP_WHOLE[name], generator=g)


def tp_cut(name, t, tp, rank):
    if name == "norm.weight":
        return t
    if name == "down.weight":
        return t.chunk(tp, 1)[rank]
    if name == "gated.weight":
        return torch.cat([x.chunk(tp)[rank] for x in t.chunk(2)])
    if name == "qkv.weight":
        return torch.cat([x.chunk(tp)[rank] for x in t.split((8, 4, 4))])
    return t.chunk(tp)[rank]


TP_INFO = {
    "universal_checkpoint_version": 0.4,
    "original_vocab_size": 9,
    "vocabulary_parameter_patterns": [r"word\.weight"],
    "tp_replicated_parameter_patterns": [r"norm\.weight"],
    "parameter_with_row_parallelism_patterns": [r"down\.weight"],
    "parameter_with_2_sub_params_cat_dim_0": [r"gated\.weight"],
    "sub_param_shard_widths": {r"qkv\.weight": [[4, 4], [2, 2], [2, 2]]},
    "parameter_with_sub_params": [{"patterns": [r"qkv\.weight"], "shape": ((8, 4, 4), 6), "partition_dim": 0}],
}


class Tp(nn.Module):
    def __init__(self, tp, rank):
        super().__init__()
        for name in TP_WHOLE:
            part, kind = name.split(".")
            if part not in self._modules:
                self.add_module(part, nn.Module())
            self._modules[part].register_parameter(kind, nn.Parameter(tp_cut(name, tp_whole(name), tp, rank).clone()))

    def forward(self, ids):      # not a real model: gradients of every weight, the same on replicas
        return sum((p * p).sum() for p in self.parameters())[None, None, None].expand(*ids.shape, 3) * 1e-2


class Mpu:
    """As much of a model-parallel unit as DeepSpeed asks for: mp = rank % tp."""

    def __init__(self, tp):
        dist = torch.distributed
        world, rank = dist.get_world_size(), dist.get_rank()
        self.tp, self.dp, self.rank = tp, world // tp, rank
        for i in range(tp):
            ranks = list(range(i, world, tp))
            g = dist.new_group(ranks)
            if rank in ranks:
                self.data = g
        for i in range(self.dp):
            ranks = list(range(i * tp, (i + 1) * tp))
            g = dist.new_group(ranks)
            if rank in ranks:
                self.model = g

    def get_model_parallel_rank(self): return self.rank % self.tp
    def get_model_parallel_world_size(self): return self.tp
    def get_model_parallel_group(self): return self.model
    def get_data_parallel_rank(self): return self.rank // self.tp
    def get_data_parallel_world_size(self): return self.dp
    def get_data_parallel_group(self): return self.data
    get_tensor_model_parallel_rank = get_model_parallel_rank
    get_tensor_model_parallel_world_size = get_model_parallel_world_size
    get_tensor_model_parallel_group = get_model_parallel_group
    def get_slice_parallel_rank(self): return self.rank % self.tp
    def get_slice_parallel_world_size(self): return self.tp


def config(stage, dtype):
    c = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
         "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
         "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "steps_per_print": 1000}
    if dtype == "bf16":
        c["bf16"] = {"enabled": True}
    if dtype == "fp16":
        c["fp16"] = {"enabled": True, "initial_scale_power": 4}
    return c


def held(engine, stage):
    """What the engine holds, by name."""
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    import deepspeed
    rows = {}
    if stage < 3:       # it links the moments in the first step of the first group: too early for the others
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    for name, p in engine.module.named_parameters():
        with deepspeed.zero.GatheredParameters([p], enabled=stage == 3):
            rows[name] = p.detach().clone()
        if not p.requires_grad:
            continue
        rows["optim.fp32." + name] = safe_get_full_fp32_param(p).clone()
        for s in ("exp_avg", "exp_avg_sq"):
            rows["optim.%s.%s" % (s, name)] = safe_get_full_optimizer_state(p, s).clone()
    for name, b in engine.module.named_buffers():
        if name in dict(engine.module.state_dict(keep_vars=True)) or name == "seen":
            rows[name] = b.detach().clone()
    return rows


def groups_of(model):
    """Weights with decay and the others without: two groups, as everyone trains."""
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    decay = [p for n, p in named if p.dim() > 1]
    rest = [p for n, p in named if p.dim() <= 1]
    return [g for g in ({"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}) if g["params"]]


def rank_main(rank, name, port):
    kind, stage, world, dtype, more = VARIANTS[name]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port), LOCAL_SIZE=str(world))
    torch.set_num_threads(1)
    import deepspeed
    deepspeed.init_distributed("gloo", verbose=False)
    torch.manual_seed(1)
    tp = more.get("tp", 1)
    mpu = Mpu(tp) if tp > 1 else None
    model = {"toy": Toy, "three": Three, "llama": llama, "pipe": pipe, "moe": Moe, "tp": lambda: Tp(tp, rank % tp)}[kind]()
    if kind == "llama" and rank == 0:
        model.config.save_pretrained(os.path.join(OUT, name))
    if kind == "tp":
        model.universal_checkpoint_info = lambda: None
    groups = groups_of(model)
    if kind == "moe":
        from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
        groups = split_params_into_different_moe_groups_for_optimizer(
            [dict(g, name="group%d" % i) for i, g in enumerate(groups)])
    opt = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    engine, *_ = deepspeed.initialize(model=model, optimizer=opt, config=config(stage, dtype), mpu=mpu)
    data = torch.Generator().manual_seed(100 + (rank // tp))
    for _ in range(3):
        if kind == "pipe":
            ids = torch.randint(0, 11, (1, 6), generator=data)
            engine.train_batch(iter([(ids, ids % 11)]))
            continue
        ids = torch.randint(0, 11, (1, 6), generator=data)
        out = engine(ids)
        out = out if isinstance(out, torch.Tensor) else out.logits
        loss = nn.functional.cross_entropy(out.float().flatten(0, 1), ids.flatten() % out.shape[-1])
        engine.backward(loss)
        engine.step()
    rows = held(engine, stage)
    state = {}
    if kind == "tp":
        state["universal_checkpoint_info"] = TP_INFO
    engine.save_checkpoint(os.path.join(OUT, name), client_state=state)
    if kind in ("pipe", "moe"):
        parts = [None] * world
        torch.distributed.all_gather_object(parts, rows)
        if kind == "moe":   # its experts are numbers 2 r and 2 r + 1
            parts = [{re.sub(r"(deepspeed_experts\.)(\d+)", lambda m: m[1] + str(2 * (r % 2) + int(m[2])), k): t
                      for k, t in part.items()} for r, part in enumerate(parts)]
        rows = {k: t for part in parts for k, t in part.items()}
    if kind != "tp" and rank == 0:
        torch_oracle(os.path.join(OUT, name + ".oracle"), rows)
    if kind == "tp" and rank < tp:
        torch.save(rows, os.path.join(OUT, "%s.mp%d.tmp" % (name, rank)))
    torch.distributed.barrier()
    if kind == "tp" and rank == 0:
        join_tp(name, tp)
    torch.distributed.destroy_process_group()


def join_tp(name, tp):
    """The whole model from the ranks' rows, by the inverse of `tp_cut`."""
    rows = [torch.load(os.path.join(OUT, "%s.mp%d.tmp" % (name, r))) for r in range(tp)]
    whole = {}
    for key in rows[0]:
        base, parts = next(n for n in TP_WHOLE if key.endswith(n)), [r[key] for r in rows]
        if base == "norm.weight":
            t = parts[0]
        elif base == "down.weight":
            t = torch.cat(parts, 1)
        elif base == "gated.weight":
            t = torch.cat([torch.cat(x) for x in zip(*(p.chunk(2) for p in parts))])
        elif base == "qkv.weight":
            t = torch.cat([torch.cat(x) for x in zip(*(p.split((8 // tp, 4 // tp, 4 // tp)) for p in parts))])
        else:
            t = torch.cat(parts)
        whole[key] = t[:9] if base == "word.weight" else t
    torch_oracle(os.path.join(OUT, name + ".oracle"), whole)
    for r in range(tp):
        os.remove(os.path.join(OUT, "%s.mp%d.tmp" % (name, r)))


def clean(name):
    root = os.path.join(OUT, name)
    for junk in ("zero_to_fp32.py", "zero_to_torch.py", "generation_config.json"):
        if os.path.exists(os.path.join(root, junk)):
            os.remove(os.path.join(root, junk))


def universal(name):
    """The output of DeepSpeed's own converter beside it."""
    root = os.path.join(OUT, name)
    tag = open(os.path.join(root, "latest")).read().strip()
    out = os.path.join(OUT, name + ".universal")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    from deepspeed.checkpoint import ds_to_universal
    more = [] if name.startswith("tp") else ["--inject_missing_state"]
    code = "import sys; from deepspeed.checkpoint import ds_to_universal as d; sys.argv[0]='ds_to_universal'; " \
           "a=d.parse_arguments(); d.main(a)"
    subprocess.run([sys.executable, "-c", code, "--input_folder", os.path.join(root, tag), "--output_folder",
                    os.path.join(out, tag + "_universal"), "--num_extract_workers", "1", "--num_merge_workers", "1"]
                   + more, check=True, stdout=subprocess.DEVNULL)
    print(name, "universal")


def main(names):
    for name in names or VARIANTS:
        shutil.rmtree(os.path.join(OUT, name), ignore_errors=True)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        try:
            torch.multiprocessing.spawn(rank_main, (name, port), nprocs=VARIANTS[name][2])
            clean(name)
            if name in UNIVERSAL or names and not name.startswith("moe"):    # of experts it makes none
                universal(name)
        except Exception as e:
            print(name, "FAILED", str(e)[-3000:], file=sys.stderr)
    versions("deepspeed", "torch", "deepspeed", "transformers")


if __name__ == "__main__":
    main(sys.argv[1:])
