# SPDX-License-Identifier: Apache-2.0
load helper

qkv() { # SEQ KEYS HEADS KV-HEADS DIM DIM-V [tns-gen options]
    tns-gen "q:shape=2x$1x$3x$5" "k:shape=2x$2x$4x$5" "v:shape=2x$2x$4x$6" "do:shape=2x$1x$3x$6" "${@:7}"
}

@test "check agrees with float64 over masks, heads, dims, dtypes and kernels" {
    local isa flags
    for isa in scalar avx2 avx512 amx; do
        TENSORUTILS_ISA=$isa fa-run info --help >/dev/null 2>&1 || continue
        for flags in "" "--causal" "--causal=tl" "--window 20,-1" "--sliding-window 30 --sink-tokens 2" \
            "--chunk 16" "--alibi --causal" "--softcap 3" "--dropout 0.2"; do
            # shellcheck disable=SC2086 # a list of options
            qkv 40 70 4 2 24 17 | TENSORUTILS_ISA=$isa fa-run check --pass both $flags >out
            # shellcheck disable=SC2086
            qkv 150 130 2 1 40 64 --dtype bf16 | TENSORUTILS_ISA=$isa fa-run check --pass both $flags >out
        done
    done
}

@test "the bits do not depend on the number of threads" {
    qkv 200 1500 4 2 64 64 -o in.tns
    fa-run --pass both --causal -j1 in.tns -o a.tns
    fa-run --pass both --causal -j7 in.tns -o b.tns
    cmp a.tns b.tns
    fa-run --deterministic --splits 5 in.tns -o a.tns
    fa-run --deterministic in.tns -o b.tns
    cmp a.tns b.tns
}

@test "parts of the keys merge to the whole" {
    tns-gen q:shape=1x9x4x32 k:shape=1x60x2x32 v:shape=1x60x2x32 -o all.tns
    fa-run --partial all.tns >one.tns
    fa-run --merge one.tns >merged.tns
    fa-run all.tns >whole.tns
    tns-diff merged.tns whole.tns
    run -3 fa-run --merge whole.tns
}

@test "another program is checked by --run" {
    qkv 20 20 2 2 16 16 -o in.tns
    fa-run check --run 'fa-run --algo naive3' in.tns
    run -1 fa-run check --run 'fa-run --algo naive3 --causal' --dump-fail bad.tns in.tns
    ends bad.tns
    run -4 fa-run check --run 'exit 3' in.tns
    fa-run in.tns -o ref.tns
    fa-run check --ref ref.tns in.tns
}

@test "check --ref FILE: a wrong reference does not allow its own error" {
    local t
    for t in f32 bf16; do
        qkv 40 40 4 2 32 32 --dtype $t -o in.tns
        tns-gen o:shape=2x40x4x32,dist=constant,value=1000 --dtype $t -o far.tns
        run -1 fa-run check --ref far.tns in.tns
        fa-run --causal in.tns -o causal.tns
        fa-run check --causal --ref causal.tns in.tns
        run -1 fa-run check --ref causal.tns in.tns # --causal forgotten
        run -1 fa-run check --causal=tl --window 8,0 --ref causal.tns in.tns
        fa-run --pass bwd in.tns -o back.tns
        fa-run check --pass bwd --ref back.tns in.tns
        run -1 fa-run check --pass bwd --causal --ref back.tns in.tns
        run -3 --separate-stderr fa-run check --pass bwd --ref causal.tns in.tns
        [[ $stderr == *"nothing to compare: the reference has no 'dq'"* ]]
    done
    tns-gen q:shape=1x30x2x16 k:shape=1x30x2x16 v:shape=1x30x2x16 -o in.tns
    fa-run --op linear in.tns -o lin.tns
    fa-run check --op linear --ref lin.tns in.tns
    run -1 fa-run check --op linear --decay 0.1 --ref lin.tns in.tns
}

@test "check --ref FILE: float64 results of another program pass, in float64 and rounded" {
    needs_python
    qkv 7 9 2 1 8 5 -o in.tns
    PYTHONPATH=$ROOT/examples/python python3 - <<'END'
import math, struct, tns
t = {r.name: (r.words, struct.unpack(f"<{len(r.data) // 4}f", r.data))
     for r in tns.read(open("in.tns", "rb")) if r.kind == tns.TENSOR}
(b, sq, h, d), q = t["q"]
(_, sk, hk, _), k = t["k"]
dv, v = t["v"][0][3], t["v"][1]
out = []
for x in range(b):
    for i in range(sq):
        for n in range(h):
            g = n // (h // hk)
            row = q[((x * sq + i) * h + n) * d:][:d]
            p = [math.exp(sum(a * c for a, c in zip(row, k[((x * sk + j) * hk + g) * d:][:d]))
                          / math.sqrt(d)) if j <= i + sk - sq else 0 for j in range(sk)]
            out += [sum(p[j] * v[((x * sk + j) * hk + g) * dv + c] for j in range(sk)) / sum(p)
                    for c in range(dv)]
for name, kind, dtype in (("o64.tns", "d", "f64"), ("o32.tns", "f", "f32")):
    with open(name, "wb") as f:
        w = tns.Writer(f)
        w.tensor("o", dtype, (b, sq, h, dv), struct.pack(f"<{len(out)}{kind}", *out))
        w.end()
END
    fa-run check --causal --ref o64.tns in.tns
    fa-run check --causal --ref o32.tns in.tns
    tns-cat -d 'o=bf16' o64.tns -o o16.tns
    fa-run check --causal --ref o16.tns in.tns
    run -1 fa-run check --ref o64.tns in.tns
    run -1 fa-run check --ref o16.tns in.tns
}

@test "--causal takes its value behind =, and says so" {
    qkv 6 6 1 1 8 8 -o in.tns
    run -2 --separate-stderr fa-run --causal tl in.tns
    [[ $stderr == *"--causal=tl"* ]]
    fa-run --causal=tl in.tns -o a.tns
    cp in.tns tl
    fa-run --causal ./tl -o b.tns
}

@test "--explain prints a table and computes nothing" {
    qkv 20 20 2 2 16 16 | fa-run --explain >out
    grep -q '^naive3  *3 ' out
}

@test "bench reports what it measured" {
    fa-run bench --seqlen 64 --headdim 32 --heads 1 --batch 1 --reps 2 --check --json >out
    grep -q '"gflops":' out
    tail -1 out | grep -q '"end":true'
}

@test "bench makes problems for every operator, and checks them" {
    needs_python
    local op pass
    fa-run --list=ops | cut -f1 >ops
    [ "$(wc -l <ops)" -ge 5 ]
    while read -r op _; do
        for pass in fwd bwd both; do
            fa-run bench --op "$op" --pass $pass --seqlen 40 --headdim 8 --heads 2 --batch 2 --storage f32 \
                --reps 1 --warmup 0 --check --json >out
            python3 - <<'END'
import json
row = json.loads(open("out").read().splitlines()[1])
assert row["gflops"] > 0 and row["max_err"] < 1e-3, row
assert row["causal"] is (row["op"] != "softmax"), row
END
        done
    done <ops
}

@test "bad shapes name both tensors" {
    tns-gen q:shape=1x4x3x8 k:shape=1x4x2x8 v:shape=1x4x2x8 >in.tns
    run -3 --separate-stderr fa-run in.tns
    [[ $stderr == *"'q' has 3 heads, not a multiple of the 2 of 'k'"* ]]
    tns-gen q:shape=1x4x2x8 k:shape=1x4x2x6 v:shape=1x4x2x6 >in.tns
    run -3 --separate-stderr fa-run in.tns
    [[ $stderr == *"'q' is 8, of 'k' 6"* ]]
    tns-gen q:shape=1x4x2x8 k:shape=1x4x2x8 >in.tns
    run -3 --separate-stderr fa-run in.tns
    [[ $stderr == *"record 'v' is missing"* ]]
    tns-gen q:shape=1x4x2x8 k:shape=1x4x2x8,dtype=bf16 v:shape=1x4x2x8 >in.tns
    run -3 fa-run in.tns
    fa-run --cast in.tns >out
    tns-gen q q k v --shape 1x4x2x8 >in.tns
    run -3 --separate-stderr fa-run in.tns
    [[ $stderr == *"'q' stands twice"* ]]
}

@test "bad options are usage errors" {
    qkv 4 4 1 1 8 8 >in.tns
    run -2 fa-run --window -2,0 in.tns
    run -2 fa-run --softcap 0 in.tns
    run -2 fa-run --dropout 1 in.tns
    run -2 fa-run --scale inf in.tns
    run -2 fa-run --op nothing in.tns
    run -2 fa-run --layout hsbd in.tns
    run -2 fa-run --algo fastest in.tns
    run -2 fa-run --sliding-window 0 in.tns
}

@test "packed sequences: bad offsets name index and value" {
    local bad
    for bad in lo=1,step=1 lo=0,step=-1 lo=0,step=2; do
        tns-gen q:shape=6x2x8 k:shape=6x2x8 v:shape=6x2x8 cu_seqlens_q:shape=3,dtype=i32,dist=arange,$bad >in.tns
        run -3 --separate-stderr fa-run in.tns
        [[ $stderr == *"'cu_seqlens_q'"* ]]
    done
    tns-gen q:shape=6x2x8 k:shape=6x2x8 v:shape=6x2x8 cu_seqlens_q:shape=3,dtype=i64,dist=arange,step=3 |
        fa-run check
}

@test "no queries and no keys are legal" {
    tns-gen q:shape=1x0x2x8 k:shape=1x3x2x8 v:shape=1x3x2x8 | fa-run >out
    tns-gen q:shape=0x2x2x8 k:shape=0x3x2x8 v:shape=0x3x2x8 | fa-run >out
    tns-gen q:shape=1x2x2x8 k:shape=1x0x2x8 v:shape=1x0x2x8 do:shape=1x2x2x8 | fa-run check --pass both
}

@test "--sp: processes give what one process gives" {
    local scheme
    tns-gen q:shape=2x48x4x16 k:shape=2x48x2x16 v:shape=2x48x2x16 do:shape=2x48x4x16 >in.tns
    for scheme in rsa ring zigzag stripe allgather lightseq ulysses usp:u=2,r=1 dsp; do
        fa-run check --pass both --causal --window 11,0 --sp $scheme --ranks 2 in.tns
    done
    fa-run --pass both --causal --deterministic in.tns >one.tns
    fa-run --pass both --causal --deterministic --sp zigzag --ranks 3 in.tns >three.tns
    cmp one.tns three.tns
    fa-run check --op linear --pass both --decay 0.1 --sp lasp2 --ranks 4 \
        <(tns-gen q k v "do" --shape 1x64x2x8)
    run -2 --separate-stderr fa-run --sp ring --ranks 5 in.tns
    [[ $stderr == *"48 tokens do not divide by 5"* ]]
    run -2 fa-run --sp nothing in.tns
}

@test "the other operators are checked in every form" {
    tns-gen q k v "do" --shape 2x70x2x8 | fa-run check --op linear --pass both --decay-slopes
    tns-gen q k v "do" gate:dist=uniform,lo=-1,hi=0 --shape 2x70x2x8 | fa-run check --op gla --pass both
    tns-gen x:shape=1x70x4x8 dt:shape=1x70x4,dist=uniform A:shape=4,dist=uniform,lo=-1,hi=0 \
        B:shape=1x70x2x16 C:shape=1x70x2x16 D:shape=4 do:shape=1x70x4x8 | fa-run check --op ssd --pass both
    tns-gen u:shape=1x30x5 dt:shape=1x30x5,dist=uniform A:shape=5x4,dist=uniform,lo=-1,hi=0 \
        B:shape=1x30x4 C:shape=1x30x4 z:shape=1x30x5 do:shape=1x30x5 | fa-run check --op mamba --pass both
    tns-gen q k v --shape 2x70x2x8 >in.tns
    run -3 --separate-stderr fa-run --op gla in.tns
    [[ $stderr == *"record 'gate' is missing"* ]]
}

@test "--rope turns pairs by position, and only differences of positions count" {
    tns-gen q:shape=1x1x1x4,dist=constant,value=1 k:shape=1x2x1x4,dist=constant,value=1 \
        v:shape=1x2x1x4,dist=arange >in.tns
    # One column pair at angle 1 (theta^0) and one at 0.01: q at position 1, keys at 0 and 1.
    fa-run --rope 10000,4 in.tns | tns-export --to npy -o - --select lse 2>/dev/null |
        tail -c 4 | od -An -tf4 >got || skip "tns-export cannot write one array to a pipe"
    # logits (2 cos 1 + 2 cos 0.01) / 2 and 2: lse = log(e^1.54025 + e^2)
    awk '{ exit !($1 > 2.4893 && $1 < 2.4895) }' got
    fa-run check --rope 10000,4,interleaved in.tns
    run -2 fa-run --rope 10000,3 in.tns
    run -2 fa-run --rope 10000,8 in.tns
}

@test "tiles and chunks that are larger than the problem are the problem" {
    tns-gen q k v --shape 1,8,2,16 -o in.tns
    fa-run in.tns -o want.tns
    for n in 64 4611686018427387904 18446744073709551615; do
        fa-run --block $n,$n in.tns | tns-diff --atol 1e-5 - want.tns
    done
    fa-run --op linear in.tns -o want.tns
    fa-run --op linear --steps 18446744073709551615 in.tns | tns-diff --atol 1e-5 - want.tns
}

@test "--layer: q, k and v under the names of a cache" {
    tns-gen q.1 kv.0.k kv.0.v kv.1.k kv.1.v --shape 5,2,16 -o cache.tns
    fa-run --layer 1 --causal cache.tns -o o.tns
    tns-cat -s '*.1*' -r 'q.1=q' -r 'kv.1.=' cache.tns | fa-run --causal | cmp - o.tns
    run -3 fa-run --layer 0 cache.tns
    assert_output --partial "layer 0: record 'q' is missing"
    run -2 fa-run --layer -2 cache.tns
}

@test "--state-in and --state-out: pieces equal the whole, in one run and in two" {
    tns-gen q k v --shape 1,96,2,16 -o in.tns
    tns-cat --slice :,0:33 in.tns -o a.tns
    tns-cat --slice :,33:96 in.tns -o b.tns
    fa-run --op linear --decay 0.1 in.tns -o whole.tns
    tns-cat -s o --slice :,33:96 whole.tns -o want.tns
    tns-cat -s state_out whole.tns >>want.tns
    fa-run --op linear --decay 0.1 --state-out s.tns a.tns -o x.tns
    fa-run --op linear --decay 0.1 --state-in s.tns b.tns -o two.tns
    tns-cat -s o two.tns -o y.tns
    tns-cat -s state_out two.tns >>y.tns
    tns-diff --atol 1e-4 y.tns want.tns
    # Without the state it is something else.
    fa-run --op linear --decay 0.1 b.tns | run -1 tns-diff --atol 1e-4 - want.tns
    # The segments of one run are pieces too, once a state is asked for.
    cat a.tns b.tns | fa-run --op linear --decay 0.1 --state-out last.tns >both.tns
    tns-cat -s state_out whole.tns | tns-diff --atol 1e-4 last.tns -
    run -2 --separate-stderr fa-run --state-out s.tns in.tns
    [[ $stderr == *"softmax carries no state"* ]]
    run -3 --separate-stderr fa-run --op linear --state-in in.tns in.tns
    [[ $stderr == *"no record 'state_out' or 'state_in'"* ]]
}
