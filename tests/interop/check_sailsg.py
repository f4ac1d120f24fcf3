"""pipe-sched's heuristics against the authors' own schedulers.

SAIL_SG names a checkout of github.com/sail-sg/zero-bubble-pipeline-parallelism; nothing of it
is kept here. Its modules are loaded with empty stand-ins for what they import and never use.
"""
import importlib.util
import json
import os
import random
import sys
import types

from interop import Skip, check, command, main, temp

ROOT = os.environ.get("SAIL_SG", "")
PACKAGE = "megatron.core.pipeline_parallel.zerobubble.scheduler"


def module(name):
    path = os.path.join(ROOT, *PACKAGE.split("."), name + ".py")
    if not ROOT or not os.path.exists(path):
        raise Skip("SAIL_SG names no checkout of zero-bubble-pipeline-parallelism")
    full = PACKAGE + "." + name
    if full not in sys.modules:
        parts = PACKAGE.split(".")
        for k in range(len(parts)):
            sys.modules.setdefault(".".join(parts[:k + 1]), types.ModuleType(parts[k]))
        for other in ("torch", "pulp"):
            sys.modules.setdefault(other, types.ModuleType(other))
        sys.modules["torch"].Tensor = object
        spec = importlib.util.spec_from_file_location(full, path)
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


def span(name, p, m, times, *more):
    doc = temp("schedule.json")
    cost = "F=%d,I=%d,W=%d,C=%d" % times
    command("pipe-sched", "gen", "-s", name, "-p", str(p), "-m", str(m), "--cost", cost, *more,
            "-o", doc)
    return json.loads(command("pipe-sched", "sim", "--json", doc))["span"]


@check("sail-sg's zero-bubble heuristic, 40 random pipelines")
def zero_bubble():
    graph, zb = module("graph"), module("zb")
    rng = random.Random(1)
    for _ in range(40):
        p, m, cap = rng.randint(2, 6), rng.randint(2, 14), 0
        f, b, w, c = [rng.randint(1, 20) for _ in range(3)] + [rng.randint(0, 3)]
        cap = 2 * rng.randint(p, 2 * p)
        config = graph.GraphConfig(
            mem_f=[2.] * p, mem_b=[-1.] * p, mem_w=[-1.] * p, max_mem=[cap] * p,
            cost_f=[float(f)] * p, cost_b=[float(b)] * p, cost_w=[float(w)] * p,
            cost_comm=float(c), n_stages=p, n_micro=m)
        want = zb.initial_solution(zb.Graph.build_graph(p, m, config), False)[0]
        have = span("zb-1p", p, m, (f, b, w, c), "--release", "split", "--memory", "B=2,W=1",
                    "--memory-cap", str(cap))
        assert have == want, (p, m, f, b, w, c, cap, have, want)


@check("sail-sg's V-Min and V-Half, 24 pipelines")
def controllable_memory():
    greedy = module("zbv_greedy")
    rng = random.Random(2)
    for p in (2, 3, 4, 5, 6, 8):
        for m in (2 * p, 3 * p):
            for kind in ("min", "half"):
                f, b, w, c = [rng.randint(5, 20) for _ in range(3)] + [rng.randint(0, 2)]
                g = greedy.PipelineGraph(p, m, kind, f, b, w, c)
                block = getattr(g, "stable_pattern_v_" + kind)(p)
                want = g.schedule_from_pattern(block, m, [f, f, b, b, w, w])[0]
                have = span("v-" + kind, p, m, (f, b, w, c))
                assert have == want, (kind, p, m, f, b, w, c, have, want)


@check("sail-sg's ZB-V heuristic, 24 random pipelines")
def zero_bubble_v():
    zbv = module("zbv")
    rng = random.Random(3)
    for _ in range(24):
        p, m = rng.randint(2, 6), rng.randint(2, 16)
        f, b, w, c = [rng.randint(1, 20) for _ in range(3)] + [rng.randint(0, 2)]
        graph = zbv.PipelineGraph(p, m, f, b, w, c, 2, -1, -1)
        bubble = min(graph.try_v_schedule(fill_f=x, fill_b=y)[2]
                     for x in (True, False) for y in (True, False))
        have = span("zb-v-auto", p, m, (f, b, w, c), "--release", "split", "--memory", "B=4,W=2")
        assert have == bubble + 2 * m * (f + b + w), (p, m, f, b, w, c, have, bubble)


if __name__ == "__main__":
    main()
