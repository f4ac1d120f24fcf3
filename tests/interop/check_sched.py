"""pipe-sched against torch.distributed.pipelining: its own generators, its lowering pass, its
validator and its simulator, on what we write."""
import types

import torch.distributed.pipelining.schedules as pp

from interop import check, command, main, temp

# our name, keys, chunks, torch's class
PAIRS = (
    ("interleaved-1f1b", "", 2, pp.ScheduleInterleaved1F1B),
    ("interleaved-1f1b", "", 3, pp.ScheduleInterleaved1F1B),
    ("breadth-first", "", 2, pp.ScheduleLoopedBFS),
    ("interleaved-zb", "", 2, pp.ScheduleInterleavedZeroBubble),
    ("zb-v", "", 2, pp.ScheduleZBVZeroBubble),
    ("dualpipe-v", "", 2, pp.ScheduleDualPipeV),
)
SIZES = ((2, 4), (2, 8), (4, 8), (4, 16), (3, 6))


def ours(text):
    """{rank: [action]} of a CSV text."""
    lines = text.decode().split("\r\n")[:-1]
    return {rank: [pp._Action.from_str(cell) for cell in line.split(",") if cell]
            for rank, line in enumerate(lines)}


def theirs(cls, p, m, v):
    """What torch's class makes, without stages or a process group."""
    s = cls.__new__(cls)
    s.pp_group_size, s._n_microbatches, s.n_local_stages = p, m, v
    s.num_stages, s._stages = p * v, [types.SimpleNamespace(stage_index=k) for k in range(v)]
    s.number_of_rounds = max(1, m // p)
    s.microbatches_per_round = m // s.number_of_rounds
    return {r: [a for a in s._calculate_single_rank_operations(r) if a is not None]
            for r in range(p)}


def place(name, p):
    return (lambda s: s if s < p else 2 * p - 1 - s) if name.endswith("-v") else (lambda s: s % p)


def full_backward(actions):
    """torch merges an I and its W that follow each other; the order is what is compared."""
    return {r: [str(a) for a in pp._merge_bw(list(x))] for r, x in actions.items()}


for name, keys, v, cls in PAIRS:
    for p, m in SIZES:
        if name == "dualpipe-v" and m < 2 * p:
            continue

        @check("sched %s p=%d m=%d v=%d is torch's" % (name, p, m, v), name, keys, v, cls, p, m)
        def generator(name, keys, v, cls, p, m):
            args = ("-s", name + keys, "-p", str(p), "-m", str(m), "-c", str(v), "--to", "csv")
            mine = ours(command("pipe-sched", "gen", *args))
            want = theirs(cls, p, m, v)
            assert full_backward(mine) == full_backward(want), (mine[0], want[0])

        @check("sched %s p=%d m=%d v=%d lowered as torch does" % (name, p, m, v), name, v, p, m)
        def lowering(name, v, p, m):
            doc = temp("schedule.json")
            size = ("-p", str(p), "-m", str(m), "-c", str(v))
            command("pipe-sched", "gen", "-s", name, *size, "-o", doc)
            compute = ours(command("pipe-sched", "convert", "--to", "csv", doc))
            pairs = any(a.sub_actions for x in compute.values() for a in x)
            if not pairs:  # torch's validator and simulator take none
                pp._validate_schedule(compute, p, p * v, m)
            lowered = ours(command("pipe-sched", "lower", "--prefetch", "0", "--to", "csv", doc))
            want = pp._add_send_recv(compute, place(name, p), p * v)
            assert {r: list(map(str, x)) for r, x in lowered.items()} == \
                   {r: list(map(str, x)) for r, x in want.items()}
            if not pairs:
                pp._simulate_comms_compute(lowered, place(name, p), p * v)


if __name__ == "__main__":
    main()
