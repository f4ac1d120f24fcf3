#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dump q, k, v, o and do of one attention call of a torch model into a tensor stream.

    from dump_attention import dump
    with dump("layer.tns", call=3):      # the fourth scaled_dot_product_attention from here on
        loss = model(**batch).loss
        loss.backward()

Then `fa-run check --layout bhsd --causal=tl --ref layer.tns layer.tns` compares
fa-run's own o on the very inputs of the layer with the recorded one, and fails where they differ by
more than the precision explains. Works with every model that calls
torch.nn.functional.scaled_dot_product_attention (Hugging Face: attn_implementation="sdpa").
"""
import contextlib

import torch
import torch.nn.functional as functional

import tns

NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.bool: "bool"}


def put(writer, name, tensor):
    """One tensor, bytes as they are."""
    flat = tensor.detach().contiguous().cpu()
    raw = flat.view(torch.uint8) if flat.dim() else flat.reshape(1).view(torch.uint8)
    writer.tensor(name, NAMES[flat.dtype], tuple(flat.shape), raw.numpy().tobytes())


@contextlib.contextmanager
def dump(path, call=0):
    """Record call number `call` made inside the block; do only if backward runs inside it."""
    inner = functional.scaled_dot_product_attention
    seen, kept = 0, {}

    def outer(query, key, value, attn_mask=None, *args, **kwargs):
        nonlocal seen
        out = inner(query, key, value, attn_mask, *args, **kwargs)
        if seen == call:
            kept.update(q=query, k=key, v=value, o=out)
            if attn_mask is not None:
                kept["mask"] = attn_mask
            if out.requires_grad:
                out.register_hook(lambda grad: kept.__setitem__("do", grad))
        seen += 1
        return out

    functional.scaled_dot_product_attention = outer
    try:
        yield kept
    finally:
        functional.scaled_dot_product_attention = inner
    with open(path, "wb") as file:
        writer = tns.Writer(file)
        for name, tensor in kept.items():
            put(writer, name, tensor)
        writer.end()
