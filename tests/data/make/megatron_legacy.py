"""tests/data/megatron: checkpoints in the legacy `mp_rank_*` layout.

    MEGATRON_LM=/path/to/Megatron-LM megatron.py [VARIANT...]

The ranks are real: Megatron's own parser makes `args`, its GPTModel is built on
every rank of a gloo world (on CPUs, local spec), `generate_state_dict` and
`get_checkpoint_name` of its checkpointing.py make the file and its name.  Only
the numbers are ours: every parameter is filled from the Hugging Face model of
the same name in tests/data/hf, cut by the rule of Megatron's own
`_initialize_affine_weight_cpu` with the partition attributes that its layers set.
Padding rows of the vocabulary hold noise, so that a reader that keeps them is seen.

Then each world runs forward, rank after rank, and the logits are compared with
transformers': the proof that names, QKV order, gate and up, stages and chunks are
right.  `<variant>.oracle` is the oracle of the Hugging Face model; the files'
own tensors are in `<variant>.<rank folder>.oracle`.
"""
import contextlib
import os
import shutil
import sys

sys.path.insert(0, os.environ.get("MEGATRON_LM", ""))
import torch

from common import DATA, folder, torch_oracle, versions

OUT = folder("megatron")
ITERATION = 7
SEED_PAD = 99

# The ones in the tree; the others are made on request (a file's `args` alone are 27 KB).
COMMITTED = ("llama_tp1", "llama_tp2_pp2", "llama_pp2_vpp2", "llama_pp2_uneven", "llama_mqa_tp2", "gpt2_tp2_pp2",
             "qwen2_tp2", "qwen3_tp2", "mixtral_ep2", "qwen2_moe_tp2")
# name: (hf folder, tp, pp, vpp, ep, more options)
VARIANTS = {
    "llama_tp1": ("llama", 1, 1, 1, 1, []),
    "llama_tp2": ("llama", 2, 1, 1, 1, []),
    "llama_tp2_pp2": ("llama", 2, 2, 1, 1, []),
    "llama_pp2_vpp2": ("llama", 1, 2, 2, 1, []),
    "llama_pp2_uneven": ("llama", 1, 2, 1, 1, ["--decoder-first-pipeline-num-layers", "3",
                                               "--decoder-last-pipeline-num-layers", "1"]),
    "llama_tp4": ("llama", 4, 1, 1, 1, []),          # more ranks than query groups
    "llama_mqa_tp2": ("llama_mqa", 2, 1, 1, 1, []),  # the same
    "gpt2_pp2": ("gpt2", 1, 2, 1, 1, []),
    "gpt2_tp1": ("gpt2", 1, 1, 1, 1, []),
    "gpt2_tp2": ("gpt2", 2, 1, 1, 1, []),
    "gpt2_tp2_pp2": ("gpt2", 2, 2, 1, 1, []),        # the tied head of the last stage
    "qwen2_tp2": ("qwen2", 2, 1, 1, 1, []),          # bias of QKV alone
    "qwen3_tp2": ("qwen3", 2, 1, 1, 1, []),          # q and k norms, head_dim * heads != hidden
    "mixtral_ep2": ("mixtral", 1, 1, 1, 2, []),
    "mixtral_tp2_ep2": ("mixtral", 2, 1, 1, 2, ["--sequence-parallel"]),
    "mixtral_pp2_ep2": ("mixtral", 1, 2, 1, 2, []),
    "qwen2_moe_tp2": ("qwen2_moe", 2, 1, 1, 1, ["--sequence-parallel"]),
}


def hf_model(kind):
    from transformers import AutoModelForCausalLM
    # Megatron-core computes the exact gelu, whatever its option is called
    more = {"activation_function": "gelu"} if kind == "gpt2" else {}
    return AutoModelForCausalLM.from_pretrained(os.path.join(DATA, "hf", kind), dtype="auto", **more).eval()


def options(kind, c, tp, pp, vpp, ep, more):
    """The command line that trains the Hugging Face config `c`."""
    o = ["--num-layers", c.num_hidden_layers, "--hidden-size", c.hidden_size,
         "--num-attention-heads", c.num_attention_heads, "--seq-length", 64, "--max-position-embeddings", 64,
         "--vocab-size", c.vocab_size, "--tokenizer-type", "NullTokenizer", "--mock-data", "--micro-batch-size", 1,
         "--train-iters", 10, "--lr", 1e-3, "--transformer-impl", "local", "--ckpt-format", "torch",
         "--no-persist-layer-norm", "--no-gradient-accumulation-fusion", "--no-masked-softmax-fusion",
         "--no-bias-gelu-fusion", "--no-bias-swiglu-fusion", "--no-rope-fusion", "--no-bias-dropout-fusion",
         "--attention-dropout", 0, "--hidden-dropout", 0, "--use-cpu-initialization", "--no-save-optim",
         "--no-save-rng", "--distributed-backend", "gloo", "--tensor-model-parallel-size", tp,
         "--pipeline-model-parallel-size", pp, "--expert-model-parallel-size", ep]
    if vpp > 1:
        o += ["--num-virtual-stages-per-pipeline-rank", vpp]
    if c.dtype != torch.float32:
        o += ["--bf16" if c.dtype == torch.bfloat16 else "--fp16"]
    if kind == "gpt2":
        return o + ["--position-embedding-type", "learned_absolute",
                    "--make-vocab-size-divisible-by", 8, "--norm-epsilon", c.layer_norm_epsilon] + more
    o += ["--swiglu", "--group-query-attention", "--num-query-groups", c.num_key_value_heads,
          "--ffn-hidden-size", c.intermediate_size, "--normalization", "RMSNorm", "--disable-bias-linear",
          "--position-embedding-type", "rope", "--rotary-base", int(c.rope_parameters["rope_theta"]),
          "--norm-epsilon", c.rms_norm_eps, "--untie-embeddings-and-output-weights",
          "--make-vocab-size-divisible-by", 32 if kind == "llama" else 8]
    if getattr(c, "head_dim", None):
        o += ["--kv-channels", c.head_dim]
    if kind.startswith("qwen2"):
        o += ["--add-qkv-bias"]
    if kind == "qwen3":
        o += ["--qk-layernorm"]
    experts = getattr(c, "num_local_experts", None) or getattr(c, "num_experts", None)
    if experts:
        o += ["--num-experts", experts, "--moe-router-topk", c.num_experts_per_tok,
              "--moe-router-load-balancing-type", "none", "--moe-token-dispatcher-type", "allgather"]
    if kind == "qwen2_moe":
        o += ["--moe-ffn-hidden-size", c.moe_intermediate_size, "--moe-router-pre-softmax",
              "--moe-shared-expert-intermediate-size", c.shared_expert_intermediate_size, "--moe-shared-expert-gate"]
    return o + more


def full_tensors(kind, c, state):
    """The whole model under Megatron's names, from the Hugging Face state dict."""
    n, h = c.num_attention_heads, c.hidden_size
    g = getattr(c, "num_key_value_heads", n)
    d = getattr(c, "head_dim", None) or h // n

    def qkv(q, k, v):        # per group: its query heads, one key head, one value head
        tail = q.shape[1:]
        rows = [torch.cat((q.view(g, n // g * d, *tail)[i], k.view(g, d, *tail)[i], v.view(g, d, *tail)[i]))
                for i in range(g)]
        return torch.cat(rows)

    full = {}
    if kind == "gpt2":
        s = {name.removeprefix("transformer."): t for name, t in state.items()}
        full["embedding.word_embeddings.weight"] = s["wte.weight"]
        full["embedding.position_embeddings.weight"] = s["wpe.weight"]
        full["output_layer.weight"] = s["wte.weight"]
        for kindof in ("weight", "bias"):
            full["decoder.final_layernorm." + kindof] = s["ln_f." + kindof]
            for i in range(c.num_hidden_layers):
                a, b = "h.%d." % i, "decoder.layers.%d." % i
                flip = (lambda t: t.t()) if kindof == "weight" else (lambda t: t)
                full[b + "input_layernorm." + kindof] = s[a + "ln_1." + kindof]
                full[b + "pre_mlp_layernorm." + kindof] = s[a + "ln_2." + kindof]
                full[b + "self_attention.linear_qkv." + kindof] = \
                    qkv(*flip(s[a + "attn.c_attn." + kindof]).contiguous().chunk(3))
                full[b + "self_attention.linear_proj." + kindof] = flip(s[a + "attn.c_proj." + kindof])
                full[b + "mlp.linear_fc1." + kindof] = flip(s[a + "mlp.c_fc." + kindof])
                full[b + "mlp.linear_fc2." + kindof] = flip(s[a + "mlp.c_proj." + kindof])
        return full
    s = state
    full["embedding.word_embeddings.weight"] = s["model.embed_tokens.weight"]
    full["output_layer.weight"] = s["lm_head.weight"]
    full["decoder.final_layernorm.weight"] = s["model.norm.weight"]
    for i in range(c.num_hidden_layers):
        a, b = "model.layers.%d." % i, "decoder.layers.%d." % i
        full[b + "input_layernorm.weight"] = s[a + "input_layernorm.weight"]
        full[b + "pre_mlp_layernorm.weight"] = s[a + "post_attention_layernorm.weight"]
        for kindof in ("weight", "bias"):
            if a + "self_attn.q_proj." + kindof in s:
                full[b + "self_attention.linear_qkv." + kindof] = \
                    qkv(*(s[a + "self_attn.%s_proj.%s" % (x, kindof)] for x in "qkv"))
        full[b + "self_attention.linear_proj.weight"] = s[a + "self_attn.o_proj.weight"]
        for x in "qk":
            if a + "self_attn.%s_norm.weight" % x in s:
                full[b + "self_attention.%s_layernorm.weight" % x] = s[a + "self_attn.%s_norm.weight" % x]

        def mlp(src, dst):
            full[dst + "linear_fc1.weight"] = torch.cat((s[src + "gate_proj.weight"], s[src + "up_proj.weight"]))
            full[dst + "linear_fc2.weight"] = s[src + "down_proj.weight"]
        if a + "mlp.gate_proj.weight" in s:
            mlp(a + "mlp.", b + "mlp.")
        if a + "mlp.experts.gate_up_proj" in s:         # in memory transformers 5 fuses the experts
            full[b + "mlp.router.weight"] = s[a + "mlp.gate.weight"]
            for e in range(s[a + "mlp.experts.down_proj"].shape[0]):
                dst = b + "mlp.experts.local_experts.%d." % e
                full[dst + "linear_fc1.weight"] = s[a + "mlp.experts.gate_up_proj"][e]
                full[dst + "linear_fc2.weight"] = s[a + "mlp.experts.down_proj"][e]
        if a + "mlp.shared_expert.gate_proj.weight" in s:
            mlp(a + "mlp.shared_expert.", b + "mlp.shared_experts.")
            full[b + "mlp.shared_experts.gate_weight"] = s[a + "mlp.shared_expert_gate.weight"]
    return full


def pad_vocab(name, t, rows):
    if name not in ("embedding.word_embeddings.weight", "output_layer.weight") or t.shape[0] == rows:
        return t
    noise = torch.randn(rows - t.shape[0], t.shape[1], generator=torch.Generator().manual_seed(SEED_PAD))
    return torch.cat((t, noise.to(t.dtype)))


def fill(model, full, args, parallel, local_experts):
    """Every parameter of one chunk from the whole tensors; returns the names used."""
    used = set()
    for name, p in model.named_parameters():
        words = name.split(".")
        if "layers" in words:
            i = words.index("layers") + 1
            words[i] = str(model.decoder.layers[int(words[i])].layer_number - 1)
        if "local_experts" in words:
            i = words.index("local_experts") + 1
            words[i] = str(int(words[i]) + parallel.get_expert_model_parallel_rank() * local_experts)
        whole = ".".join(words)
        t = pad_vocab(whole, full[whole], args.padded_vocab_size)
        if getattr(p, "tensor_model_parallel", False):      # as _initialize_affine_weight_cpu cuts
            dim, stride = p.partition_dim, p.partition_stride
            if p.dim() == 1 and "linear_fc1" in name and args.swiglu:
                stride = 2
            pieces = torch.split(t, p.shape[dim] // stride, dim=dim)
            t = torch.cat(pieces[parallel.get_tensor_model_parallel_rank()::args.tensor_model_parallel_size], dim=dim)
        assert t.shape == p.shape, (name, whole, t.shape, p.shape)
        with torch.no_grad():
            p.copy_(t)
        used.add(whole)
    return used


def build(kind, c, spec):
    """This rank's chunks, made by Megatron."""
    _, tp, pp, vpp, ep, more = spec
    sys.argv = ["pretrain_gpt.py"] + [str(x) for x in options(kind, c, tp, pp, vpp, ep, more)]
    from megatron.core import parallel_state as parallel
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_block import get_num_layers_to_build
    from megatron.training import arguments
    from megatron.training.tokenizer.tokenizer import _vocab_size_with_padding
    from megatron.core import tensor_parallel
    from megatron.core.transformer.moe import moe_utils
    torch.cuda.current_device = lambda: torch.device("cpu")     # where it puts what it makes
    moe_utils.te_general_gemm = None                            # TransformerEngine's, absent
    torch.Tensor.cuda = lambda self, *_, **__: self
    tensor_parallel.get_cuda_rng_tracker().fork = lambda *_: contextlib.nullcontext()     # dropout is 0
    arguments.get_device_arch_version = lambda: 9
    args = arguments.parse_args()
    arguments.validate_args(args)
    args.padded_vocab_size = _vocab_size_with_padding(c.vocab_size, args)
    parallel.initialize_model_parallel(tp, pp, vpp if vpp > 1 else None, expert_model_parallel_size=ep)
    config = arguments.core_transformer_config_from_args(args)
    config.sequence_parallel = False        # torch's norms have none; it changes no weight
    layer = get_gpt_layer_local_spec(num_experts=args.num_experts, qk_layernorm=args.qk_layernorm,
                                     normalization=args.normalization)
    chunks = []
    for v in range(vpp):
        stage = {"vp_stage": v} if vpp > 1 else {}
        first = parallel.is_pipeline_first_stage(ignore_virtual=vpp == 1, **stage)
        last = parallel.is_pipeline_last_stage(ignore_virtual=vpp == 1, **stage)
        chunks.append(GPTModel(
            config, layer, args.padded_vocab_size, 64, pre_process=first, post_process=last, parallel_output=False,
            share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
            position_embedding_type=args.position_embedding_type, rotary_percent=args.rotary_percent,
            rotary_base=args.rotary_base, **stage).to(args.params_dtype).eval())
    return args, chunks, parallel


def forward(chunks, ids, args, parallel):
    """Logits [batch, token, vocabulary] on the last stage's ranks, else None."""
    dist = torch.distributed
    pp, rank = args.pipeline_model_parallel_size, dist.get_rank()
    me, step = parallel.get_pipeline_model_parallel_rank(), dist.get_world_size() // pp
    mask = torch.triu(torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool), 1)[None, None]
    positions = torch.arange(ids.shape[1])[None]
    for v, chunk in enumerate(chunks):
        chunk.float()
        if not (v == 0 and me == 0):
            hidden = torch.empty(ids.shape[1], ids.shape[0], args.hidden_size)
            dist.recv(hidden, (rank - step) % dist.get_world_size())
            chunk.set_input_tensor(hidden)
        with torch.no_grad():
            out = chunk(ids, positions, mask)
        if v == len(chunks) - 1 and me == pp - 1:
            return out
        dist.send(out.contiguous(), (rank + step) % dist.get_world_size())
    return None


def save(name, args, chunks, parallel):
    from megatron.training import checkpointing
    root = os.path.join(OUT, name)
    file = checkpointing.get_checkpoint_name(root, ITERATION)
    os.makedirs(os.path.dirname(file), exist_ok=True)
    state = checkpointing.generate_state_dict(args, chunks, None, None, None, iteration=ITERATION)
    torch.save(state, file)
    torch_oracle("%s.%s.oracle" % (root, os.path.basename(os.path.dirname(file))), state)
    if torch.distributed.get_rank() == 0:
        with open(os.path.join(root, "latest_checkpointed_iteration.txt"), "w") as f:
            f.write(str(ITERATION))


def rank_main(rank, world, name, port, check):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port), CUDA_DEVICE_MAX_CONNECTIONS="1")
    torch.set_num_threads(1)
    if rank:
        sys.stdout = open(os.devnull, "w")
    spec = VARIANTS[name]
    kind = spec[0]
    torch.distributed.init_process_group("gloo")
    hf = hf_model(kind)
    full = full_tensors(kind, hf.config, hf.state_dict())
    args, chunks, parallel = build(kind, hf.config, spec)
    local = (args.num_experts or 0) // args.expert_model_parallel_size
    used = set()
    for chunk in chunks:
        used |= fill(chunk, full, args, parallel, local)
    everything = [None] * world
    torch.distributed.all_gather_object(everything, used)
    missing = set(full) - set().union(*everything) - ({"output_layer.weight"} if kind == "gpt2" else set())
    assert not missing, missing
    check(name, args, chunks, parallel)
    ids = torch.randint(0, hf.config.vocab_size, (1, 16), generator=torch.Generator().manual_seed(5))
    logits = forward(chunks, ids, args, parallel)
    if logits is not None:
        with torch.no_grad():
            want = hf.float()(ids).logits
        diff = (logits[..., :want.shape[-1]] - want).abs().max().item()
        assert diff < 1e-4, (name, "logits differ by", diff)
        if parallel.get_tensor_model_parallel_rank() == 0:
            print("%-18s rank %d: logits within %.2g of transformers'" % (name, rank, diff), file=sys.stderr)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def world_of(name, check):
    import socket
    _, tp, pp, _, ep, _ = VARIANTS[name]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    world = tp * pp * ep
    torch.multiprocessing.spawn(rank_main, (world, name, port, check), nprocs=world)


def main(names):
    for name in names or COMMITTED:
        shutil.rmtree(os.path.join(OUT, name), ignore_errors=True)
        try:
            world_of(name, save)
        except Exception as e:
            print(name, "FAILED", str(e)[-1500:], file=sys.stderr)
            continue
        shutil.copy(os.path.join(DATA, "hf", VARIANTS[name][0] + ".oracle"), os.path.join(OUT, name + ".oracle"))
    versions("megatron", "torch", "transformers", note="Megatron-LM core_v0.16.1 (megatron.core and megatron.training)")


if __name__ == "__main__":
    main(sys.argv[1:])
