"""quantize against the packages that deploy its formats: their encoders give our bytes, their
decoders give our numbers, bit for bit.  gguf, ml_dtypes, compressed-tensors, bitsandbytes (CPU), torchao,
hqq, auto-round; llama.cpp's own quantizer, tokens and divergence where LLAMA_CPP_BIN names a folder of its programs."""
import json
import os
import shutil
import subprocess

import numpy as np
import torch

from interop import Skip, check, command, data, main, temp
from safetensors.torch import load_file, save_file

ROWS, COLS = 96, 512


def weights():
    """Normal values, outliers, a group of zeros, one of equal values; bf16 numbers as f32."""
    g = torch.Generator().manual_seed(7)
    w = torch.randn(ROWS, COLS, generator=g)
    w[3, 17] = 40.0
    w[5, :128] = 0
    w[6, 128:256] = 0.75
    w[7] *= 1e-5
    return w


def ours(codec, w, suffix=".tns"):
    """Tensors that quantize makes of x.weight: those of the deployed file."""
    src, out = temp("w.safetensors"), temp("q.safetensors")
    save_file({"x.weight": w.contiguous()}, src)
    command("quantize", "-q", "-t", codec, src, "-o", out)
    return load_file(out)


def decoded(codec, w):
    src, q, out = temp("w.safetensors"), temp("q.tns"), temp("d.safetensors")
    save_file({"x.weight": w.contiguous()}, src)
    command("quantize", "-q", "-t", codec, src, "-o", q)
    command("quantize", "decode", "-d", "f32", q, "-o", out, "--to", "safetensors")
    return load_file(out)["x.weight"]


def equal(name, got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        raise AssertionError("%s: %s %s, expected %s %s" % (name, got.dtype, tuple(got.shape), want.dtype, tuple(want.shape)))
    raw = [t.contiguous().view(torch.uint8).flatten() for t in (got, want)]
    bad = int((raw[0] != raw[1]).sum())
    if bad:
        raise AssertionError("%s: %d of %d bytes differ" % (name, bad, raw[0].numel()))


# gguf -------------------------------------------------------------------------------------------


@check("gguf: our blocks decode to our numbers, its encoders give our bytes", "q4_0 q4_1 q5_0 q5_1 q8_0 tq1_0 tq2_0")
@check("gguf: our blocks decode to our numbers", "q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4")
def gguf_types(types):
    from gguf import GGMLQuantizationType as Q, quants
    w = weights()
    for name in types.split():
        src, q = temp("w.safetensors"), temp("q.tns")
        save_file({"x.weight": w}, src)
        command("quantize", "-q", "-t", name, src, "-o", q)
        raw = np.frombuffer(payload(q), np.uint8)
        kind = Q[name.upper()]
        block, size = __import__("gguf").GGML_QUANT_SIZES[kind]
        raw = raw.reshape(ROWS, COLS // block * size)
        equal(name, decoded(name, w), torch.from_numpy(quants.dequantize(raw, kind).copy()))
        if name in "q4_0 q4_1 q5_0 q5_1 q8_0 tq1_0 tq2_0":
            theirs = quants.quantize(w.numpy(), kind)
            if theirs.tobytes() != raw.tobytes():
                raise AssertionError("%s: its encoder gives other bytes" % name)


def payload(path):
    """The first tensor's bytes of a stream."""
    import struct
    with open(path, "rb") as f:
        while True:
            head = f.read(64)
            kind, length, n = struct.unpack_from("<H", head, 10)[0], struct.unpack_from("<I", head, 16)[0], \
                struct.unpack_from("<Q", head, 40)[0]
            f.read(length - 64)
            if kind == 1:
                return f.read(n)
            f.seek((n + (-(n + 8) % 64) + 8) if n else 0, 1)


# ml_dtypes ------------------------------------------------------------------------------------------


@check("ml_dtypes: every bfloat16 as fp8, both elements, both overflows")
def fp8():
    import ml_dtypes
    bits = np.arange(65536, dtype=np.uint32) << 16
    x = bits.view(np.float32)
    x = x[np.isfinite(x)]
    w = torch.from_numpy(np.resize(x, (255, 256)).copy())
    for name, dtype in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)):
        src, q = temp("w.safetensors"), temp("q.tns")
        save_file({"x.weight": w}, src)
        command("quantize", "-q", "-t", "fp8:elem=%s,nosat" % name, src, "-o", q)
        got = np.frombuffer(payload(q), np.uint8)
        want = w.numpy().astype(dtype).view(np.uint8).flatten()
        nan = np.isnan(want.view(dtype).astype(np.float32))
        same = (got == want) | (nan & np.isnan(got.view(dtype).astype(np.float32)))
        if not same.all():
            raise AssertionError("%s: %d codes differ" % (name, int((~same).sum())))


# compressed-tensors ---------------------------------------------------------------------------------


def ct(codec, args):
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
    from compressed_tensors.quantization.utils import calculate_qparams, calculate_range
    q = QuantizationArgs(**args)
    w = weights()
    group = args.get("group_size") or COLS
    parts = w.reshape(ROWS, COLS // group, group)
    scale, zero = calculate_qparams(parts.amin(-1), parts.amax(-1), q)
    codes = quantize(w, scale, zero if not q.symmetric else None, q, dtype=torch.int8)
    values = dequantize(codes, scale, zero if not q.symmetric else None, q)
    return w, q, scale, zero, codes, values


@check("compressed-tensors: int4 symmetric, packed", "int4:group=128", dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=128))
@check("compressed-tensors: int4 with zeros, packed", "int4:group=128,asym", dict(num_bits=4, type="int", symmetric=False, strategy="group", group_size=128))
@check("compressed-tensors: int8 by channel, packed", "int8:packed", dict(num_bits=8, type="int", symmetric=True, strategy="channel"))
def packed(codec, args):
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
    w, q, scale, zero, codes, values = ct(codec, args)
    if not q.symmetric:         # a group of zeros has 0/0 for its zero there, which no cast defines: -8 here
        parts = w.reshape(ROWS, -1, q.group_size)
        none = parts.abs().amax(-1) == 0
        zero[none] = -8
        codes.reshape(parts.shape)[none] = -8
    got = ours(codec, w)
    equal("scale", got["x.weight_scale"], scale.to(torch.float32))
    equal("weight_packed", got["x.weight_packed"], pack_to_int32(codes, q.num_bits))
    equal("their codes of ours", unpack_from_int32(got["x.weight_packed"], q.num_bits, torch.Size(got["x.weight_shape"].tolist())), codes)
    if not q.symmetric:
        equal("zero", got["x.weight_zero_point"], pack_to_int32(zero.to(torch.int8), q.num_bits, packed_dim=0))
    equal("values", decoded(codec, w), values.to(torch.float32))


@check("compressed-tensors: NVFP4 packed")
def nvfp4():
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    w = weights()
    got = ours("nvfp4_packed", w)
    e2m1 = unpack_fp4_from_uint8(got["x.weight_packed"], ROWS, COLS, dtype=torch.float32)
    scale = got["x.weight_scale"].to(torch.float32) / got["x.weight_global_scale"]
    equal("values", decoded("nvfp4_packed", w), e2m1 * scale.repeat_interleave(16, 1))


# bitsandbytes ------------------------------------------------------------------------------------------


@check("bitsandbytes: nf4 and fp4 blocks", "nf4", "fp4")
def bnb(*names):
    import bitsandbytes.functional as F
    w = weights()
    for name in names:
        got = ours(name, w)
        q, state = F.quantize_4bit(w, blocksize=64, quant_type=name)
        equal(name + " absmax", got["x.weight.absmax"], state.absmax)
        mine, theirs = got["x.weight"].flatten(), q.flatten()
        if name == "fp4":        # +0 and -0 are the same value
            for t in (mine, theirs):
                low, high = t & 15, t >> 4
                t.copy_(torch.where(low == 8, 0, low) | (torch.where(high == 8, 0, high) << 4))
        equal(name + " codes", mine, theirs)
        back = F.dequantize_4bit(got["x.weight"].reshape(q.shape), state)
        equal(name + " values", decoded(name, w), back.to(torch.float32))


@check("bitsandbytes: its quant state takes our file")
def bnb_state():
    from bitsandbytes.functional import QuantState, dequantize_4bit
    w = weights()
    for codec in ("nf4", "nf4:nested"):
        got = ours(codec, w)
        state = QuantState.from_dict({k[len("x.weight."):]: v for k, v in got.items() if k != "x.weight"},
                                     device=torch.device("cpu"))
        back = dequantize_4bit(got["x.weight"], state).to(torch.float32)
        mine = decoded(codec, w)
        if not torch.equal(back, mine):
            worst = float((back - mine).abs().max())
            if codec == "nf4" or worst > 1e-6 * float(w.abs().max()):
                raise AssertionError("%s: values differ by %g" % (codec, worst))


# torchao -------------------------------------------------------------------------------------------------


@check("torchao: MXFP8 and MXFP4, floor, ceil, rceil and even")
def mx():
    from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode as M, to_mx
    w = weights()
    w[7] *= 1e5
    for codec, elem in (("mxfp8", torch.float8_e4m3fn), ("mxfp8:elem=e5m2", torch.float8_e5m2), ("mxfp4_packed", None)):
        for mode in (M.FLOOR, M.CEIL, M.RCEIL, M.EVEN):
            name = codec + ("," if ":" in codec else ":") + "scale=" + mode.name.lower()
            scale, q = to_mx(w, elem or torch.float4_e2m1fn_x2, 32, mode)
            got = ours(name, w)
            equal(name + " scale", got["x.weight_scale"].flatten(), scale.view(torch.uint8).flatten())
            codes = got.get("x.weight_packed", got.get("x.weight"))
            equal(name + " codes", codes.view(torch.uint8).flatten(), q.view(torch.uint8).flatten())


# GPTQ ---------------------------------------------------------------------------------------------------


@check("GPTQ: the reference's walk on the same Hessian gives our codes", "")
@check("GPTQ: the same in the order of the diagonal", ":order")
def gptq(order):
    g = torch.Generator().manual_seed(3)
    mix = torch.randn(64, 16, generator=g)
    x = (torch.randn(512, 16, generator=g) @ mix.T + 0.1 * torch.randn(512, 64, generator=g)).float()
    w = torch.randn(48, 64, generator=g)
    src, cal, q, out = temp("w.safetensors"), temp("x.safetensors"), temp("q.tns"), temp("d.safetensors")
    save_file({"x.weight": w}, src)
    save_file({"x.input": x}, cal)
    command("quantize", "-q", "-t", "gptq4:group=32,scale=f32", "--calib", cal, "--method", "gptq" + order, src, "-o", q)
    command("quantize", "decode", "-d", "f32", q, "-o", out, "--to", "safetensors")
    mine = load_file(out)["x.weight"]
    theirs = reference_gptq(w, x, 4, 32, bool(order))
    off = (mine - theirs).abs() > 1e-4
    rtn = decoded("gptq4:group=32,scale=f32", w)
    loss = [float(((w - v) @ x.T).pow(2).sum()) for v in (rtn, mine, theirs)]
    if off.float().mean() > 0.005 or not loss[1] < 0.5 * loss[0] or abs(loss[1] - loss[2]) > 0.02 * loss[2]:
        raise AssertionError("%.2f%% differ; losses rounded %g, ours %g, reference %g" % (100 * off.float().mean(), *loss))


def reference_gptq(w, x, bits, group, order):
    """IST-DASLab/gptq gptq.py's steps, in double."""
    w, x = w.double().clone(), x.double()
    cols = w.shape[1]
    h = 2 / x.shape[0] * x.T @ x
    perm = torch.argsort(torch.diag(h), descending=True) if order else torch.arange(cols)
    w, h = w[:, perm], h[perm][:, perm]
    h += 0.01 * torch.diag(h).mean() * torch.eye(cols, dtype=torch.float64)
    u = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(h)), upper=True)
    out, top = torch.zeros_like(w), 2 ** bits - 1
    for j in range(cols):
        if j % group == 0:
            part = w[:, j:j + group].float()
            most = torch.maximum(part.amin(1).clamp(max=0).abs(), part.amax(1).clamp(min=0))
            scale, zero = 2 * most / top, (top + 1) // 2
        q = (torch.clamp(torch.round(w[:, j].float() / scale) + zero, 0, top) - zero) * scale
        out[:, j] = q.double()
        e = (w[:, j] - q.double()) / u[j, j]
        w[:, j:] -= e[:, None] * u[j, j:][None]
    return out[:, torch.argsort(perm)].float()


# whole models ---------------------------------------------------------------------------------------------


@check("transformers loads a compressed-tensors folder of ours")
def folder():
    from transformers import AutoModelForCausalLM
    out = temp("ct")
    command("quantize", "-q", "-t", "int4:group=16", data("hf/llama"), "-o", out + "/")
    m = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    logits = m(torch.tensor([[1, 5, 9, 20]])).logits
    back = temp("dense")
    command("quantize", "decode", out, "-o", back + "/")
    with open(os.path.join(back, "config.json")) as f:
        if "quantization_config" in json.load(f):
            raise AssertionError("decoded, but config.json still says that it is coded")
    want = AutoModelForCausalLM.from_pretrained(back, dtype=torch.float32)(torch.tensor([[1, 5, 9, 20]])).logits
    if float((logits - want).abs().max()) > 2e-2:
        raise AssertionError("logits differ by %g" % float((logits - want).abs().max()))


def logits(folder):
    from transformers import AutoModelForCausalLM
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(torch.tensor([[1, 5, 9, 20]])).logits


@check("transformers: a rotated model gives the same logits", "llama", "mistral", "qwen2", "qwen3", "mixtral", "mixtral_fused",
       "qwen2_moe")
def rotated(*models):
    for name in models:
        for args in ((), ("--random", "--of", "hidden"), ("--random", "--of", "heads")):
            out = temp("rotated")
            shutil.rmtree(out, ignore_errors=True)
            command("quantize", "rotate", "-d", "f32", *args, data("hf/" + name), "-o", out + "/")
            want, got = logits(data("hf/" + name)), logits(out)
            if float((got - want).abs().max()) > 1e-4 * float(want.abs().max()):
                raise AssertionError("%s %s: logits differ by %g of %g" % (name, args, float((got - want).abs().max()),
                                                                           float(want.abs().max())))


def layer_inputs(folder):
    """Inputs of every linear layer, X.input for X.weight, over a few tokens."""
    from transformers import AutoModelForCausalLM
    m, seen = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), {}
    for name, layer in m.named_modules():
        if isinstance(layer, torch.nn.Linear):
            layer.register_forward_pre_hook(
                lambda _, args, name=name: seen.setdefault(name + ".input", args[0].reshape(-1, args[0].shape[-1]).clone()))
    with torch.no_grad():
        m(torch.arange(2, 42).reshape(1, -1) % 89)
    return seen


@check("transformers: scales folded into norms, v and up leave the logits", "llama", "llama_mqa", "mistral", "qwen2", "qwen3")
def folded(*models):
    for name in models:
        calib, out = temp("calib.safetensors"), temp("folded")
        save_file(layer_inputs(data("hf/" + name)), calib)
        shutil.rmtree(out, ignore_errors=True)
        command("quantize", "-q", "-t", "f32", "-r", ".*=f32", "--method", "smooth", "--calib", calib, data("hf/" + name), "-o",
                out + "/")
        was, now = (load_file(os.path.join(f, "model.safetensors")) for f in (data("hf/" + name), out))
        for part in "self_attn.o_proj", "mlp.down_proj", "self_attn.q_proj":
            k = "model.layers.1.%s.weight" % part
            if torch.allclose(was[k].float(), now[k], rtol=1e-2):
                raise AssertionError("%s: %s has not moved" % (name, k))
        want, got = logits(data("hf/" + name)), logits(out)
        if float((got - want).abs().max()) > 1e-4 * float(want.abs().max()):
            raise AssertionError("%s: logits differ by %g of %g" % (name, float((got - want).abs().max()), float(want.abs().max())))
        shutil.rmtree(out)
        command("quantize", "-q", "-t", "int4:group=16", "--method", "awq", "--calib", calib, data("hf/" + name), "-o", out + "/")
        if not torch.isfinite(logits(out)).all():
            raise AssertionError("%s: AWQ's logits are not finite" % name)


def plain_layers(model):
    return {n: m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"}


def put_folder(folder, tensors, config):
    """A folder with tiny Llama's config.json and `config` in it."""
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    with open(data("hf/llama/config.json")) as f:
        whole = json.load(f)
    whole["quantization_config"] = config
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(whole, f)
    save_file(tensors, os.path.join(folder, "model.safetensors"))


def decoded_folder(folder):
    back = temp("back")
    shutil.rmtree(back, ignore_errors=True)
    command("quantize", "decode", "-d", "f32", folder, "-o", back + "/")
    return load_file(os.path.join(back, "model.safetensors"))


@check("hqq: what HQQLinear saves decodes to its numbers", 8, 4, 2, 1, 3)
def hqq(*widths):
    try:
        from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
    except ImportError as e:
        raise Skip("hqq: %s" % e)
    from transformers import AutoModelForCausalLM
    for bits in widths:
        for axis in 0, 1:
            model = AutoModelForCausalLM.from_pretrained(data("hf/llama"), dtype=torch.float16)
            tensors = {n: p.detach().contiguous() for n, p in model.named_parameters()}
            want = {}
            for name, layer in plain_layers(model).items():
                q = HQQLinear(layer, BaseQuantizeConfig(nbits=bits, group_size=16, axis=axis), compute_dtype=torch.float16,
                              device="cpu", del_orig=False)
                del tensors[name + ".weight"]
                tensors.update((name + "." + k, v.contiguous()) for k, v in q.state_dict().items())
                codes = q.unpack(reshape=False).float()
                zero, scale = q.meta["zero"].float(), q.meta["scale"].float()
                codes = codes[:zero.shape[0]] if axis == 1 else codes[:16]  # three bits leave rows of padding
                want[name + ".weight"] = ((codes - zero) * scale).reshape(q.meta["shape"])
            folder = temp("hqq")
            put_folder(folder, tensors, {"quant_method": "hqq", "quant_config": {"weight_quant_params": {
                "nbits": bits, "group_size": 16, "axis": axis}}})
            got = decoded_folder(folder)
            for name, w in want.items():
                equal("%s, %d bits, axis %d" % (name, bits, axis), got[name], w)


@check("auto-round: what it saves decodes to near the weights, and to its own logits", "auto_round", "auto_gptq", "auto_awq")
def auto_round(*formats):
    try:
        from auto_round import AutoRound
    except ImportError as e:
        raise Skip("auto_round: %s" % e)
    from transformers import AutoModelForCausalLM, AutoTokenizer
    was = load_file(data("hf/llama/model.safetensors"))
    for form in formats:
        model = AutoModelForCausalLM.from_pretrained(data("hf/llama"), dtype=torch.float32)
        rounder = AutoRound(model, AutoTokenizer.from_pretrained(data("hf/llama")), bits=4, group_size=16, sym=form != "auto_awq",
                            iters=0, device_map="cpu", disable_opt_rtn=True)
        out = temp(form)
        rounder.quantize_and_save(out, format=form)
        folder = next(d for d, _, files in os.walk(out) if "config.json" in files)
        for name, w in decoded_folder(folder).items():
            x = was[name].float()
            if float((w - x).norm()) > 0.12 * float(x.norm()):
                raise AssertionError("%s: '%s' is off by %g of %g" % (form, name, float((w - x).norm()), float(x.norm())))
        if form == "auto_round":  # the others want packages that run on GPUs
            want, got = logits(folder), logits(temp("back"))
            if float((got - want).abs().max()) > 3e-3 * float(want.abs().max()):
                raise AssertionError("%s: logits differ by %g" % (form, float((got - want).abs().max())))


def llama_cpp(name):
    path = os.path.join(os.environ.get("LLAMA_CPP_BIN", ""), name)
    if not os.environ.get("LLAMA_CPP_BIN") or not os.path.exists(path):
        raise Skip("LLAMA_CPP_BIN names no folder with " + name)
    return path


MIXTURES = """q4_0_m Q4_0 q4_1_m Q4_1 q5_0_m Q5_0 q5_1_m Q5_1 q2_k_m Q2_K q3_k_s Q3_K_S q3_k_m Q3_K_M q3_k_l Q3_K_L
q4_k_s Q4_K_S q4_k_m Q4_K_M q5_k_s Q5_K_S q5_k_m Q5_K_M q6_k_m Q6_K iq4_nl_m IQ4_NL iq4_xs_m IQ4_XS tq1_0_m TQ1_0
tq2_0_m TQ2_0 mxfp4_moe MXFP4_MOE q8_0 Q8_0""".split()


@check("llama.cpp: tiny Llama as q4_k_m: our bytes, and our file runs to the same tokens")
def tokens():
    quantizer, runner = llama_cpp("llama-quantize"), llama_cpp("llama-completion")
    whole, mine, theirs = temp("m.tns"), temp("mine.gguf"), temp("theirs.gguf")
    command("shard-ckpt", "cat", "-q", "--to", "gguf", data("hf/llama"), "-o", whole)
    command("quantize", "-q", "-t", "q4_k_m", whole, "-o", mine)
    subprocess.run([quantizer, data("gguf/hf/llama.gguf"), theirs, "q4_k_m"], check=True, capture_output=True)
    command("tns-diff", "-q", mine, theirs)
    said = [subprocess.run([runner, "-m", f, "-p", "the shards in", "-n", "16", "--temp", "0", "--no-warmup", "-no-cnv"],
                           check=True, capture_output=True, stdin=subprocess.DEVNULL).stdout for f in (mine, theirs)]
    if said[0] != said[1] or not said[0].strip():
        raise AssertionError("tokens differ: %r, %r" % tuple(said))


@check("llama.cpp: every mixture of a dense, a grouped and a mixture-of-experts model, byte for byte")
def mixtures():
    from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM
    quantizer = llama_cpp("llama-quantize")
    torch.manual_seed(1)
    small = dict(hidden_size=256, vocab_size=320)
    models = (LlamaForCausalLM(LlamaConfig(intermediate_size=512, num_hidden_layers=17, num_attention_heads=4,
                                           num_key_value_heads=4, **small)),
              LlamaForCausalLM(LlamaConfig(intermediate_size=512, num_hidden_layers=16, num_attention_heads=8,
                                           num_key_value_heads=2, tie_word_embeddings=True, **small)),
              MixtralForCausalLM(MixtralConfig(intermediate_size=256, num_hidden_layers=9, num_attention_heads=4,
                                               num_key_value_heads=2, num_local_experts=8, **small)))
    for m in models:
        folder, whole, plain, mine, theirs = (temp(n) for n in ("m", "m.tns", "m.gguf", "mine.gguf", "theirs.gguf"))
        shutil.rmtree(folder, ignore_errors=True)
        m.to(torch.bfloat16).save_pretrained(folder)
        command("shard-ckpt", "cat", "-q", "--to", "gguf", folder, "-o", whole)
        command("tns-export", whole, "-o", plain)
        for ours_name, name in zip(MIXTURES[::2], MIXTURES[1::2]):
            command("quantize", "-q", "-t", ours_name, whole, "-o", mine)
            subprocess.run([quantizer, plain, theirs, name], check=True, capture_output=True)
            command("tns-diff", "-q", mine, theirs)


def logits_of(path):
    """Log probabilities and the tokens that came, of a --kl-divergence-base file."""
    raw = open(path, "rb").read()
    if raw[:8] != b"_logits_":
        raise AssertionError("not a file of logits")
    context, vocab, chunks = np.frombuffer(raw, np.int32, 3, 8)
    tokens = np.frombuffer(raw, np.int32, context * chunks, 20).reshape(chunks, context)
    rows = context - 1 - context // 2
    wide = 2 * ((vocab + 1) // 2) + 4
    packed = np.frombuffer(raw, np.uint16, chunks * rows * wide, 20 + 4 * context * chunks).reshape(-1, wide)
    head = packed[:, :4].copy().view(np.float32)
    return (packed[:, 4:4 + vocab] * head[:, :1] + head[:, 1:],
            np.ascontiguousarray(tokens[:, context // 2 + 1:]).reshape(-1))


@check("llama.cpp: --kl-divergence of tiny Llama in q4_k_m says what measure --logits says")
def divergence():
    runner, whole, text = llama_cpp("llama-perplexity"), temp("m.tns"), temp("text")
    plain, coded = temp("plain.gguf"), temp("coded.gguf")
    command("shard-ckpt", "cat", "-q", "--to", "gguf", data("hf/llama"), "-o", whole)
    command("tns-export", whole, "-o", plain)
    command("quantize", "-q", "-t", "q2_k_m", whole, "-o", coded)
    with open(text, "w") as f:
        f.write(" ".join("the shards in %d rows of %d" % (i, i * i % 97) for i in range(400)))

    def perplexity(model, *args):
        return subprocess.run([runner, "-m", model, "-f", text, "-c", "32", "-b", "32", "--no-warmup", *args], check=True,
                              capture_output=True, stdin=subprocess.DEVNULL, text=True)
    perplexity(plain, "--kl-divergence-base", temp("base"))
    perplexity(coded, "--kl-divergence-base", temp("other"))
    said = perplexity(coded, "--kl-divergence-base", temp("base"), "--kl-divergence")
    said = (said.stdout + said.stderr).replace("\u00b1", " ")
    base, next_token = logits_of(temp("base"))
    for name, tensors in (("base", {"x": torch.from_numpy(base)}), ("other", {"x": torch.from_numpy(logits_of(temp("other"))[0])}),
                          ("next", {"x": torch.from_numpy(next_token)})):
        save_file(tensors, temp(name + ".safetensors"))
    lines = command("quantize", "measure", "--json", "--logits", temp("base.safetensors"), "--tokens", temp("next.safetensors"),
                    temp("other.safetensors")).decode().split("\n")
    ours = json.loads(lines[1])

    def theirs(label):
        line = next(row for row in said.split("\n") if row.startswith(label))
        return float(line.split(":")[1].split()[0].rstrip("%"))
    # Their base is in 16 bits too; our other side as well.
    pairs = (("Mean PPL(Q) ", ours["ppl"]), ("Mean PPL(base) ", ours["base_ppl"]), ("Mean ln(PPL(Q)/PPL(base))", ours["log_ratio"]),
             ("Mean    KLD", ours["kl_mean"]), ("Median  KLD", ours["kl_median"]), ("99.0%   KLD", ours["kl_p99"]),
             ("Maximum KLD", ours["kl_max"]), ("Same top p", 100 * ours["same_top"]), ("RMS \u0394p", 100 * ours["change_rms"]))
    for label, got in pairs:
        want = theirs(label)
        if abs(got - want) > 5e-4 + 2e-3 * abs(want):  # of three digits behind the point
            raise AssertionError("%s: %g, expected %g" % (label, got, want))


if __name__ == "__main__":
    raise SystemExit(main())
