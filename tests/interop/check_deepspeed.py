"""ZeRO checkpoints that `shard-ckpt convert` writes, loaded by DeepSpeed itself.

Training goes on for three steps from the original and from our conversion to another
stage and another number of ranks.  Every rank sees the same batch, so that the mean of
the gradients is the gradient and the arithmetic is the same: losses and weights must be
equal to the last bit, but for tensors across stage 3, whose sums are its own.  DeepSpeed's own zero_to_fp32 and ds_to_universal read ours too.
"""
import multiprocessing
import os
import socket
import subprocess
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch  # noqa: E402

from interop import Skip, check, command, data, main, same, temp, torch_rows  # noqa: E402

try:
    import deepspeed  # noqa: F401
    import deepspeed_zero as made
except ImportError as e:
    made, why = None, e

CASES = [("toy_z1_dp2", 1, 2), ("toy_z1_dp2", 1, 4), ("toy_z1_dp2", 2, 4), ("toy_z1_dp2", 3, 2),
         ("toy_z3_dp2", 2, 4), ("toy_z3_dp2", 3, 4), ("toy_z1_dp4_fp32", 3, 2), ("toy_z1_dp2", 2, 1)]


def worker(rank, world, port, root, stage, dtype, universal, out):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port), LOCAL_SIZE=str(world))
    torch.set_num_threads(1)
    import deepspeed
    deepspeed.init_distributed("gloo", verbose=False)
    torch.manual_seed(1)
    model = made.Toy()              # frozen weights as they were: DeepSpeed does not load them in stage 3
    for p in model.parameters():
        if p.requires_grad:         # the others as they are not in the checkpoint
            p.data.add_(torch.randn_like(p))
    opt = torch.optim.AdamW(made.groups_of(model), lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    config = made.config(stage, dtype)
    if stage == 3:                  # its own linear layer rounds bias and product apart
        config["zero_optimization"]["memory_efficient_linear"] = False
    if universal:
        config["checkpoint"] = {"load_universal": True}
    engine, *_ = deepspeed.initialize(model=model, optimizer=opt, config=config)
    engine.load_checkpoint(root)
    losses = []
    batch = torch.Generator().manual_seed(5)
    for _ in range(3):
        ids = torch.randint(0, 11, (1, 6), generator=batch)
        loss = torch.nn.functional.cross_entropy(engine(ids).float().flatten(0, 1), ids.flatten())
        losses.append(loss.item())
        engine.backward(loss)
        engine.step()
    rows = made.held(engine, stage)
    if rank == 0:
        torch.save((losses, rows), out)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def go_on(root, stage, world, dtype, universal=False):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    out = temp("state.pt")
    torch.multiprocessing.spawn(worker, (world, port, root, stage, dtype, universal, out), nprocs=world)
    return torch.load(out)


def compare(name, got, want, alike):
    """Losses to the last bit; tensors too where the stages sum gradients alike (1 and 2, or 3), else
    within a few roundings of float32."""
    assert got[0] == want[0], f"{name}: losses {got[0]}, natively {want[0]}"
    if alike:
        same(torch_rows(got[1]), torch_rows(want[1]))
        return
    assert set(got[1]) == set(want[1])
    for key, t in want[1].items():
        assert torch.allclose(got[1][key].float(), t.float(), rtol=1e-4 if key.startswith("optim.") else 8e-3,
                              atol=1e-6), key


native = {}


def natively(name):
    if name not in native:
        stage, dp = int(name.split("_z")[1][0]), int(name.split("_dp")[1][0])
        native[name] = go_on(data("deepspeed/" + name), stage, dp, "fp32" if "fp32" in name else "bf16")
    return native[name]


for case in CASES:
    @check("%s goes on as ZeRO-%d on %d ranks" % case, *case)
    def trains(name, stage, dp):
        if not made:
            raise Skip(str(why))
        root = temp("zero")
        command("shard-ckpt", "convert", "--to", f"zero:stage={stage},dp={dp}", data("deepspeed/" + name), root)
        first = int(name.split("_z")[1][0])
        compare(name, go_on(root, stage, dp, "fp32" if "fp32" in name else "bf16"), natively(name),
                (first == 3) == (stage == 3))


@check("zero_to_fp32 reads ours")
def to_fp32():
    if not made:
        raise Skip(str(why))
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint as load
    for to in ("stage=1,dp=3", "stage=2,dp=4", "stage=3,dp=3"):
        root = temp("fp32." + to.replace(",", "."))
        command("shard-ckpt", "convert", "--to", "zero:" + to, data("deepspeed/toy_z1_dp2"), root)
        got, want = dict(load(root)), dict(load(data("deepspeed/toy_z1_dp2")))
        got.pop("frozen.weight", None)      # DeepSpeed lists what is frozen in stage 3 only
        same(torch_rows(got), torch_rows(want))


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn", force=True)
    main()
