"""kv-pack against the real things: Python's pickle and cbor2 for block names, numpy for every
layout's formula, transformers for caches that go out, come back and go on, codecs on a real one."""
import hashlib
import json
import os
import pickle

import numpy as np
import torch

from interop import Skip, check, command, data, main, temp

LAYOUTS = {  # name: shape and axes of one layer's keys and values, pages given
    "nhd-paged": "pthd", "hnd-paged": "phtd", "vllm": ("phdtx", "phdt"), "vllm-fa": "spthd", "vllm-fa-hnd": "sphtd",
    "flashinfer": "psthd", "flashinfer-hnd": "pshtd",
}


def names(scheme, block, tokens, *more):
    path = temp("tokens")
    with open(path, "w") as f:
        f.write(" ".join(map(str, tokens)))
    out = command("kv-pack", "hash", "--hash", scheme, "-b", str(block), "--json", *more, path)
    rows = [json.loads(line) for line in out.decode().splitlines()]
    return [r["hash"] for r in rows if "hash" in r]


def chain(dumps, block, tokens, seed="vllm-none-hash", extra=lambda start: None):
    before = hashlib.sha256(dumps(seed)).digest()
    out = []
    for i in range(0, len(tokens) - block + 1, block):
        before = hashlib.sha256(dumps((before, tuple(tokens[i:i + block]), extra(i)))).digest()
        out.append(before.hex())
    return out


def block_names():
    rng = np.random.default_rng(1)
    dumps = {"vllm-sha256": lambda o: pickle.dumps(o, protocol=5)}
    try:
        import cbor2
        dumps["vllm-cbor"] = lambda o: cbor2.dumps(o, canonical=True)
    except ImportError:
        pass
    for scheme, dump in dumps.items():
        for block in (1, 2, 3, 4, 16, 64):
            tokens = rng.choice([0, 23, 24, 255, 256, 65535, 65536, 2**31 - 1], 200).tolist()
            assert names(scheme, block, tokens) == chain(dump, block, tokens), (scheme, block)
            assert names(scheme, block, tokens, "--hash-seed", "7", "--lora", "a/b", "--salt", "s" * 300) == \
                chain(dump, block, tokens, "7", lambda i: ("a/b", "s" * 300) if i == 0 else ("a/b",)), (scheme, block)


def layouts():
    T, H, D, B = 23, 3, 16, 4
    rng = np.random.default_rng(2)
    k, v = (rng.standard_normal((T, H, D)).astype(np.float16) for _ in range(2))
    raw, pool = temp("raw"), temp("pool")
    with open(raw, "wb") as f:
        f.write(k.tobytes() + v.tobytes())
    cache = temp("cache.tns")
    command("kv-pack", "pack", "--from", f"raw:layers=1,heads={H},dim={D},tokens={T},dtype=f16", raw, "-o", cache)
    for name, axes in LAYOUTS.items():
        command("kv-pack", "convert", "-l", name, "-b", str(B), cache, "-o", temp("c.tns"))
        command("kv-pack", "unpack", "--to", "raw", temp("c.tns"), "-o", pool)
        got = np.fromfile(pool, np.float16)
        n, x = -(-T // B), 8
        pages = np.zeros((2, n * B, H, D), np.float16)
        pages[:, :T] = k, v
        full = pages.reshape(2, n, B, H, D // x, x)  # s p t h d x
        want = []
        for side in range(2):
            order = axes if isinstance(axes, str) else axes[side]
            if "s" in order and side:
                continue
            a = full if "s" in order else full[side:side + 1]
            keep = order if "x" in order else order.replace("d", "dx")
            where = {c: i for i, c in enumerate("spthdx")}
            axis = [where["s"]] * ("s" not in keep) + [where[c] for c in keep]
            want.append(np.transpose(a, axis).ravel())
        assert np.array_equal(got, np.concatenate(want)), name


def model():
    try:
        import transformers
    except ImportError:
        raise Skip("no transformers")
    folder = data("hf/llama_demo")
    m = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([[(i * 37 + 5) % 120 + 3 for i in range(40)]])
    with torch.no_grad():
        return m, ids, m(ids, use_cache=True).past_key_values


def go_on(m, pairs, steps=8):
    import transformers
    cache = transformers.DynamicCache()
    for i, (k, v) in enumerate(pairs):
        cache.update(k, v, i)
    out, t = [], torch.tensor([[9]])
    with torch.no_grad():
        for _ in range(steps):
            r = m(t, past_key_values=cache, use_cache=True)
            out.append(r.logits[0, -1])
            t = r.logits[:, -1:].argmax(-1)
    return torch.stack(out)


def pairs_of(cache):
    return tuple((x.keys.clone(), x.values.clone()) for x in cache.layers)


def past_key_values():
    m, _, cache = model()
    want = go_on(m, pairs_of(cache))
    torch.save(cache, temp("cache.pt"))
    command("kv-pack", "pack", "--from", "hf", temp("cache.pt"), "-o", temp("c.tns"))
    command("kv-pack", "convert", "-l", "vllm", "-b", "16", temp("c.tns"), "-o", temp("p.tns"))
    command("kv-pack", "convert", temp("p.tns"), "-o", temp("d.tns"))
    command("kv-pack", "unpack", "--to", "hf:as=torch", temp("d.tns"), "-o", temp("back.pt"))
    back = torch.load(temp("back.pt"), weights_only=True)
    assert torch.equal(go_on(m, back), want)


def shifted():
    m, ids, cache = model()
    torch.save(pairs_of(cache), temp("cache.pt"))
    command("kv-pack", "pack", "--from", "hf", temp("cache.pt"), "-o", temp("c.tns"))
    command("kv-pack", "convert", "--shift", "11", "--rope", "10000", temp("c.tns"), "-o", temp("d.tns"))
    command("kv-pack", "unpack", "--to", "hf:as=torch", temp("d.tns"), "-o", temp("back.pt"))
    back = torch.load(temp("back.pt"), weights_only=True)
    with torch.no_grad():
        want = m(ids, position_ids=torch.arange(11, 51)[None], use_cache=True).past_key_values
    for (k, _), x in zip(back, want.layers):
        assert torch.allclose(k, x.keys, atol=1e-4)


def codecs():
    m, _, cache = model()
    want = go_on(m, pairs_of(cache))
    torch.save(cache, temp("cache.pt"))
    command("kv-pack", "pack", "--from", "hf", temp("cache.pt"), "-o", temp("c.tns"))
    for codec, limit in (("planes", 0), ("zlib", 0), ("fp8", .05), ("kv4:group=8", .2), ("kivi:bits=4,group=8,residual=8", .2)):
        command("kv-pack", "compress", "-c", codec, "--report", temp("r.json"), temp("c.tns"), "-o", temp("z.tns"))
        command("kv-pack", "decompress", temp("z.tns"), "-o", temp("d.tns"))
        command("kv-pack", "unpack", "--to", "hf:as=torch", temp("d.tns"), "-o", temp("back.pt"))
        got = go_on(m, torch.load(temp("back.pt"), weights_only=True), 1)
        error = float((got - want[:1]).norm() / want[:1].norm())
        report = [json.loads(line) for line in open(temp("r.json"))]
        worst = [r for r in report if "worst_output_rel" in r][0]["worst_output_rel"]
        assert error <= limit and worst <= max(limit, 1e-12) * 2, (codec, error, worst)


check("block names")(block_names)
check("layouts")(layouts)
check("past_key_values")(past_key_values)
check("shift")(shifted)
check("codecs")(codecs)
main()
