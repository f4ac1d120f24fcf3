"""Distributed checkpoints that `shard-ckpt convert` writes, loaded by torch itself."""
import os
import sys

import torch

from interop import Skip, check, command, data, main, oracle, same, temp, torch_rows

try:
    from torch.distributed.checkpoint import FileSystemReader, load
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
except ImportError as e:
    load, why = None, e


def read(reader):
    known = {k: v for k, v in reader.read_metadata().state_dict_metadata.items() if hasattr(v, "size")}
    state = {k: torch.empty(v.size, dtype=v.properties.dtype) for k, v in known.items()}
    load(state, storage_reader=reader, no_dist=True)
    return state


def weights(fixture):
    return {k: v for k, v in oracle(fixture).items() if not k.startswith("optim.")}


def chunks(fixture, how):
    """Model and optimizer, as load gives them into tensors made from .metadata."""
    if load is None:
        raise Skip(str(why))
    out = temp("out")
    command("shard-ckpt", "convert", "--to", "dcp:" + how, data(fixture), out)
    rows = {}
    for key, tensor in read(FileSystemReader(out)).items():
        if key.startswith("model."):
            rows[key[len("model."):]] = tensor
        elif not key.endswith(".step"):
            name, state = key[len("optim.state."):].rsplit(".", 1)
            rows["optim.%s.%s" % (state, name)] = tensor
    same(torch_rows(rows), oracle(fixture))


def nested(fixture):
    """torch's own converter restores the dictionaries."""
    if load is None:
        raise Skip(str(why))
    out = temp("out")
    command("shard-ckpt", "convert", "--to", "dcp:ranks=2", data(fixture), out)
    dcp_to_torch_save(out, out + ".pt")
    saved = torch.load(out + ".pt", weights_only=False)
    os.remove(out + ".pt")
    same(torch_rows(saved["model"]), weights(fixture))
    first = next(iter(saved["optim"]["state"].values()))
    assert set(first) == {"step", "exp_avg", "exp_avg_sq"}, sorted(first)
    assert saved["optim"]["param_groups"], "no groups"


def hugging_face(fixture, how):
    try:
        from torch.distributed.checkpoint import HuggingFaceStorageReader
    except ImportError as e:
        raise Skip(str(e))
    out = temp("out")
    command("shard-ckpt", "convert", "--to", "dcp_hf:" + how, data(fixture), out)
    same(torch_rows(read(HuggingFaceStorageReader(out))), weights(fixture))


for fixture in ("dcp/fsdp2_dp2", "dcp/tp2_dp2", "dcp/fsdp2_dp4_bf16"):
    check("dcp %s" % fixture, fixture, "ranks=3")(chunks)
    check("dcp_hf %s" % fixture, fixture, "ranks=3")(hugging_face)
check("dcp one file", "dcp/hsdp_2x2", "ranks=1")(chunks)
check("dcp nested", "dcp/fsdp2_dp2")(nested)
check("dcp_hf llama", "hf/llama", "ranks=2")(hugging_face)

if __name__ == "__main__":
    sys.exit(main())
