# SPDX-License-Identifier: Apache-2.0
"""fa-run against torch's scaled_dot_product_attention: forward, gradients, grouped heads, packed."""
import io
import os
import subprocess
import sys

from interop import BINDIR, HERE, check, main

sys.path.insert(0, os.path.join(HERE, "..", "..", "examples", "python"))
import torch  # noqa: E402
import tns  # noqa: E402

NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.int32: "i32"}
TYPES = {tns.DTYPES["f32"][0]: torch.float32, tns.DTYPES["bf16"][0]: torch.bfloat16}
attend = torch.nn.functional.scaled_dot_product_attention


def run(args, **tensors):
    """What fa-run makes of these tensors, by name."""
    file = io.BytesIO()
    writer = tns.Writer(file)
    for name, x in tensors.items():
        x = x.detach().contiguous()
        writer.tensor(name, NAMES[x.dtype], tuple(x.shape), x.view(torch.uint8).numpy().tobytes())
    writer.end()
    out = subprocess.run([os.path.join(BINDIR, "fa-run"), *args], input=file.getvalue(),
                         stdout=subprocess.PIPE, check=True).stdout
    return {rec.name: torch.frombuffer(bytearray(rec.data), dtype=TYPES[rec.dtype])
            .reshape(tuple(rec.words)) for rec in tns.read(io.BytesIO(out)) if rec.dtype in TYPES}


def near(name, x, want, dtype):
    """Within a few roundings of the greatest element."""
    tolerance = (1e-5 if dtype == torch.float32 else 1.6e-2) * max(1, want.abs().max().item())
    worst = (x.float() - want.float()).abs().max().item()
    assert worst <= tolerance, f"{name}: {worst} is more than {tolerance}"


CASES = [(4, 2, 33, 33, 40, True), (2, 2, 17, 50, 64, False), (6, 1, 64, 64, 72, True),
         (8, 8, 1, 300, 128, False)]
for dtype in (torch.float32, torch.bfloat16):
    for case in CASES:
        @check(f"{NAMES[dtype]}, heads {case[0]}/{case[1]}, {case[2]}x{case[3]}, dim {case[4]}, "
               f"causal {case[5]}", dtype, *case)
        def dense(dtype, hq, hkv, sq, sk, d, causal):
            torch.manual_seed(0)
            q, k, v, do = (torch.randn(2, h, s, d).to(dtype) for h, s in
                           ((hq, sq), (hkv, sk), (hkv, sk), (hq, sq)))
            wide = [x.float().requires_grad_() for x in (q, k, v)]
            o = attend(*wide, is_causal=causal, enable_gqa=True)
            o.backward(do.float())
            got = run(["--layout", "bhsd", "--pass", "both"] + ["--causal=tl"] * causal,
                      q=q, k=k, v=v, do=do)
            near("o", got["o"], o, dtype)
            for name, x in zip(("dq", "dk", "dv"), wide):
                near(name, got[name], x.grad, dtype)


@check("packed sequences, one of them empty")
def packed():
    torch.manual_seed(0)
    lengths = [5, 0, 21, 8]
    ends = torch.tensor([0] + torch.tensor(lengths).cumsum(0).tolist(), dtype=torch.int32)
    q, k, v = (torch.randn(sum(lengths), h, 16) for h in (4, 2, 2))
    got = run(["--causal"], q=q, k=k, v=v, cu_seqlens_q=ends, cu_seqlens_k=ends)["o"]
    for i, n in enumerate(lengths):
        if n:
            part = slice(ends[i], ends[i + 1])
            want = attend(*(x[part].transpose(0, 1) for x in (q, k, v)), is_causal=True,
                          enable_gqa=True)
            near(f"sequence {i}", got[part], want.transpose(0, 1), torch.float32)


if __name__ == "__main__":
    sys.exit(main())
