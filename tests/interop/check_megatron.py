"""What `shard-ckpt convert --to megatron` writes, loaded by the real Megatron-core.

Every rank is real: a gloo world on CPUs, GPTModel with the local spec,
`load_state_dict(strict=True)`, then a forward pass over all ranks whose logits
must be those of transformers.  The files of the layouts that tests/data/megatron
has are also compared tensor by tensor with Megatron's own.
"""
import argparse
import dataclasses
import glob
import os
import signal
import socket
import sys
import tempfile

import torch

from interop import Skip, check, command, data, main, same, temp, torch_rows

# model, layout, the fixture of the same layout (compared where the tree has it)
CASES = (
    ("llama", "tp=1", "llama_tp1"), ("llama", "tp=2", "llama_tp2"), ("llama", "tp=2,pp=2", "llama_tp2_pp2"),
    ("llama", "pp=2,vpp=2", "llama_pp2_vpp2"), ("llama", "pp=2,layers=3+1", "llama_pp2_uneven"),
    ("llama", "tp=4", "llama_tp4"), ("gpt2", "tp=2", "gpt2_tp2"), ("gpt2", "tp=2,pp=2", "gpt2_tp2_pp2"),
    ("qwen2", "tp=2", "qwen2_tp2"), ("qwen3", "tp=2", "qwen3_tp2"), ("mixtral", "ep=2", "mixtral_ep2"),
    ("mixtral", "tp=2,ep=2", "mixtral_tp2_ep2"), ("mixtral", "pp=2,ep=2", "mixtral_pp2_ep2"),
    ("qwen2_moe", "tp=2", "qwen2_moe_tp2"), ("gpt2", "pp=2", "gpt2_pp2"), ("llama_mqa", "tp=2", "llama_mqa_tp2"),
    ("llama_even", "tp=2,pp=2", None), ("mistral", "tp=2", None),
)
# model, how it is written, the mesh that loads it by dist_checkpointing: tp, pp, ep
DIST = (
    ("llama", "ranks=3", (1, 1, 1)), ("llama", "ranks=2,pad=2", (2, 2, 1)), ("gpt2", "ranks=1", (2, 1, 1)),
    ("mixtral", "ranks=2,spec=local", (1, 1, 2)), ("qwen3", "ranks=2", (2, 1, 1)),
)
VOCAB = ("embedding.word_embeddings.weight", "output_layer.weight")


def load(file):
    """As a careful user loads it: nothing but data and the classes of the arguments."""
    allowed = [argparse.Namespace, signal.Signals]
    try:
        from megatron.core.transformer.enums import AttnBackend
        allowed.append(AttnBackend)
    except ImportError:
        pass
    with torch.serialization.safe_globals(allowed):
        return torch.load(file, weights_only=True, map_location="cpu")


def rank_files(root):
    with open(os.path.join(root, "latest_checkpointed_iteration.txt")) as f:
        word = f.read().strip()
    folder = os.path.join(root, word if word == "release" else "iter_%07d" % int(word))
    return {os.path.basename(os.path.dirname(p)): p for p in glob.glob(folder + "/mp_rank_*/model_optim_rng.pt")}


def files(root, fixture):
    """Each rank's tensors against Megatron's own; rows that pad the vocabulary may differ."""
    mine, real = rank_files(root), rank_files(data("megatron/" + fixture))
    assert set(mine) == set(real), "rank folders %s, expected %s" % (sorted(mine), sorted(real))
    for rank in sorted(real):
        a, b = load(mine[rank]), torch.load(real[rank], weights_only=False)
        keys = sorted(k for k in b if k.startswith("model"))
        assert sorted(k for k in a if k.startswith("model")) == keys, "%s: keys %s" % (rank, sorted(a))
        assert a["checkpoint_version"] == 3.0
        tp, rows = b["args"].tensor_model_parallel_size, b["args"].padded_vocab_size
        first = int(rank.split("_")[2]) * rows // tp
        for key in keys:
            x = {k: t for k, t in a[key].items() if isinstance(t, torch.Tensor)}
            y = {k: t for k, t in b[key].items() if isinstance(t, torch.Tensor)}
            for t in (x, y):
                for name in VOCAB:
                    if name in t:
                        assert t[name].shape[0] == rows // tp, "%s: %d rows" % (name, t[name].shape[0])
                        t[name] = t[name][:max(0, b["args"].vocab_size - first)]
            same(torch_rows(x), torch_rows(y))


def number(args, name, default):
    value = getattr(args, name, None)
    return default if value is None else value


def chunks_of(args, parallel):
    """This rank's chunks from the checkpoint's own arguments."""
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig
    fields = {f.name for f in dataclasses.fields(TransformerConfig)}
    known = {k: v for k, v in vars(args).items() if k in fields and v is not None}
    for derived in ("sequence_parallel", "context_parallel_size", "init_method", "output_layer_init_method",
                    "bf16", "fp16"):
        known.pop(derived, None)
    swiglu = bool(number(args, "swiglu", False))
    vpp = number(args, "virtual_pipeline_model_parallel_size", 1)
    dtype = torch.float32  # the local spec's CPU kernels know no other; loading widens exactly
    known.update(
        use_cpu_initialization=True, gradient_accumulation_fusion=False, persist_layer_norm=False,
        bias_activation_fusion=False, bias_dropout_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False,
        attention_dropout=0.0, hidden_dropout=0.0, params_dtype=dtype, pipeline_dtype=dtype,
        gated_linear_unit=swiglu, activation_func=torch.nn.functional.silu if swiglu else torch.nn.functional.gelu,
        num_moe_experts=number(args, "num_experts", None), normalization=number(args, "normalization", "LayerNorm"),
        layernorm_epsilon=number(args, "layernorm_epsilon", number(args, "norm_epsilon", 1e-5)),
        moe_token_dispatcher_type="allgather",
        moe_router_load_balancing_type="none", virtual_pipeline_model_parallel_size=vpp if vpp > 1 else None,
        num_layers_in_first_pipeline_stage=number(args, "decoder_first_pipeline_num_layers", None),
        num_layers_in_last_pipeline_stage=number(args, "decoder_last_pipeline_num_layers", None),
        num_query_groups=args.num_query_groups if number(args, "group_query_attention", False)
        else args.num_attention_heads)
    config = TransformerConfig(**known)
    layer = get_gpt_layer_local_spec(num_experts=config.num_moe_experts,
                                     qk_layernorm=number(args, "qk_layernorm", False),
                                     normalization=config.normalization)
    chunks = []
    for v in range(vpp):
        stage = {"vp_stage": v} if vpp > 1 else {}
        chunks.append(GPTModel(
            config, layer, args.padded_vocab_size, number(args, "max_position_embeddings", 64),
            pre_process=parallel.is_pipeline_first_stage(ignore_virtual=vpp == 1, **stage),
            post_process=parallel.is_pipeline_last_stage(ignore_virtual=vpp == 1, **stage), parallel_output=False,
            share_embeddings_and_output_weights=not number(args, "untie_embeddings_and_output_weights", False),
            position_embedding_type=number(args, "position_embedding_type", "learned_absolute"),
            rotary_percent=number(args, "rotary_percent", 1.0), rotary_base=number(args, "rotary_base", 10000),
            **stage).to(dtype).eval())
    return chunks


def rank_main(rank, world, root, model, port, failures, mesh):
    try:
        rank_work(rank, world, root, model, port, mesh)
    except Exception as why:
        with open(os.path.join(failures, str(rank)), "w") as f:
            f.write("rank %d: %s: %s" % (rank, type(why).__name__, why))
        raise


def dist_folder(root):
    with open(os.path.join(root, "latest_checkpointed_iteration.txt")) as f:
        word = f.read().strip()
    return os.path.join(root, word if word == "release" else "iter_%07d" % int(word))


def common_args(root, mesh):
    """The arguments of a distributed checkpoint for another mesh."""
    args = load(os.path.join(dist_folder(root), "common.pt"))["args"]
    args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.expert_model_parallel_size = mesh
    return args


def load_dist(root, chunk):
    """As a training loads it, and nothing may be missing."""
    from megatron.core import dist_checkpointing
    from megatron.core.safe_globals import register_safe_globals
    register_safe_globals()
    state = dist_checkpointing.load(chunk.sharded_state_dict(), dist_folder(root))
    weights = {k: v for k, v in state.items() if k in dict(chunk.state_dict())}
    chunk.load_state_dict(weights, strict=True)


def rank_work(rank, world, root, model, port, mesh):
    import contextlib
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    sys.stdout = open(os.devnull, "w")
    torch.set_num_threads(1)
    from megatron.core import parallel_state as parallel
    from megatron.core import tensor_parallel
    from megatron.core.transformer.moe import moe_utils
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.Tensor.cuda = lambda self, *_, **__: self
    moe_utils.te_general_gemm = None
    tensor_parallel.get_cuda_rng_tracker().fork = lambda *_: contextlib.nullcontext()
    paths = {} if mesh else rank_files(root)
    args = load(paths[sorted(paths)[0]])["args"] if paths else common_args(root, mesh)
    tp, pp = args.tensor_model_parallel_size, args.pipeline_model_parallel_size
    vpp, ep = number(args, "virtual_pipeline_model_parallel_size", 1), number(args, "expert_model_parallel_size", 1)
    torch.distributed.init_process_group("gloo")
    parallel.initialize_model_parallel(tp, pp, vpp if vpp > 1 else None, expert_model_parallel_size=ep)
    if mesh:
        chunks = chunks_of(args, parallel)
        load_dist(root, chunks[0])
        return same_logits(model, chunks, args, parallel)
    name = "mp_rank_%02d" % parallel.get_tensor_model_parallel_rank()
    if pp > 1:
        name += "_%03d" % parallel.get_pipeline_model_parallel_rank()
    if ep > 1:
        name += "_%03d" % parallel.get_expert_model_parallel_rank()
    state = load(paths[name])
    chunks = chunks_of(state["args"], parallel)
    for v, chunk in enumerate(chunks):
        chunk.load_state_dict(state["model%d" % v if vpp > 1 else "model"], strict=True)
    same_logits(model, chunks, args, parallel)


def same_logits(model, chunks, args, parallel):
    from megatron_legacy import forward, hf_model
    hf = hf_model(model)
    ids = torch.randint(0, hf.config.vocab_size, (1, 16), generator=torch.Generator().manual_seed(5))
    args.sequence_parallel = False
    logits = forward(chunks, ids, args, parallel)
    if logits is not None:
        with torch.no_grad():
            want = hf.float()(ids).logits
        diff = (logits[..., :want.shape[-1]] - want).abs().max().item()
        assert diff < 1e-4, "logits differ by %g" % diff
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def model_loads(root, model, mesh=None):
    try:
        import megatron.core    # noqa: F401
    except ImportError as why:
        raise Skip("no megatron-core: %s" % why)
    args = common_args(root, mesh) if mesh else load(next(iter(rank_files(root).values())))["args"]
    world = (args.tensor_model_parallel_size * args.pipeline_model_parallel_size
             * number(args, "expert_model_parallel_size", 1))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as failures:
        try:
            torch.multiprocessing.spawn(rank_main, (world, root, model, port, failures, mesh), nprocs=world)
        except Exception:
            for name in sorted(os.listdir(failures)):
                raise AssertionError(open(os.path.join(failures, name)).read())
            raise


def written(model, layout, fixture):
    out = temp("out")
    if fixture and os.path.isdir(data("megatron/" + fixture)):
        real = torch.load(next(iter(rank_files(data("megatron/" + fixture)).values())), weights_only=False)["args"]
        layout += ",pad=%d" % real.make_vocab_size_divisible_by
    command("shard-ckpt", "convert", "--to", "megatron:" + layout + ",spec=local", data("hf/" + model), out)
    if fixture and os.path.isdir(data("megatron/" + fixture)):
        files(out, fixture)
    model_loads(out, model)


def itself(fixture):
    """The check's own check: the real Megatron's file passes it."""
    files(data("megatron/" + fixture), fixture)
    model_loads(data("megatron/" + fixture), fixture.split("_")[0])


def distributed(model, how, mesh):
    out = temp("out")
    command("shard-ckpt", "convert", "--to", "torch_dist:" + how, data("hf/" + model), out)
    model_loads(out, model, mesh)


def plain(root):
    """All tensors of a distributed checkpoint, by torch."""
    from torch.distributed.checkpoint import FileSystemReader, load
    reader = FileSystemReader(dist_folder(root))
    known = {k: v for k, v in reader.read_metadata().state_dict_metadata.items() if hasattr(v, "size")}
    state = {k: torch.empty(v.size, dtype=v.properties.dtype) for k, v in known.items()}
    load(state, storage_reader=reader, no_dist=True)
    return {k: t[:97] if any(k.endswith(n) for n in VOCAB) else t for k, t in state.items()}


def distributed_again(fixture):
    """Weights and states of Megatron's own, through ours, as torch reads both."""
    out = temp("out")
    command("shard-ckpt", "convert", "--to", "torch_dist:ranks=3", data("torch_dist/" + fixture), out)
    same(torch_rows(plain(out)), torch_rows({k.replace(".fp32_param.", ".param."): t for k, t in
                                             plain(data("torch_dist/" + fixture)).items()}))


check("megatron itself llama_tp2_pp2", "llama_tp2_pp2")(itself)
for model, layout, fixture in CASES:
    check("megatron %s %s" % (model, layout), model, layout, fixture)(written)

check("torch_dist again llama_tp2_pp2", "llama_tp2_pp2")(distributed_again)
for model, how, mesh in DIST:
    check("torch_dist %s %s on tp=%d,pp=%d,ep=%d" % ((model, how) + mesh), model, how, mesh)(distributed)

if __name__ == "__main__":
    sys.exit(main())
