# SPDX-License-Identifier: Apache-2.0
"""Times torch's attention on the shapes of bench.c: one JSON object per back end and shape."""
import json

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

for causal in (False, True):
    for d in (64, 128, 256):
        b, s, h = 2, 8192, 2048 // d
        q, k, v = (torch.randn(b, h, s, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        flops = 4 * b * h * s * s * d * (0.5 if causal else 1)
        for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
            best = None
            try:
                with sdpa_kernel(getattr(SDPBackend, name)):
                    for i in range(13):
                        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                        start.record()
                        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
                        end.record()
                        end.synchronize()
                        if i >= 3:
                            ms = start.elapsed_time(end)
                            best = ms if best is None else min(best, ms)
            except RuntimeError:
                continue
            print(json.dumps({"peer": f"torch {name.lower()} bf16 d={d}{' causal' if causal else ''}",
                              "tflops": round(flops / best / 1e9, 1)}))
