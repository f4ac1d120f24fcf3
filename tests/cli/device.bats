#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# --device: what is absent is said in one line with status 4, and the kernels give the CPU's bytes.
# The plug-in here is the kernels' own source on a device of fibers (lib/device/cuda/emulate.c).
load helper

prepare() {
    unset TENSORUTILS_EMULATE TENSORUTILS_EMULATE_COUNT
    tns-gen w --shape 24,256 -o w.tns
}
emulated() { TENSORUTILS_PLUGINS=$BUILD/emulated "$@"; }
# stderr is EXPECTED, beside AddressSanitizer's word on fibers where it is built in.
said() { assert_equal "$(grep -v "ASan doesn't fully support makecontext" <<<"$stderr")" "$1"; }

# Where no CUDA plug-in is: an empty folder, also on machines that have built one.
without() { mkdir -p none; TENSORUTILS_PLUGINS=$PWD/none "$@"; }

@test "without the plug-in: status 4, and what brings it" {
    run -4 --separate-stderr without quantize -t q4_0 --device cuda w.tns
    assert_equal "$output" ''
    assert_equal "$stderr" "quantize: --device cuda: plug-in 'cuda' is not installed: build with 'make CUDA=1', which needs the CUDA toolkit"
}

@test "auto falls back to the CPU and says so" {
    run -0 --separate-stderr without quantize -t q4_0 --device auto w.tns -o o.tns
    assert_equal "$stderr" "quantize: warning: using the CPU: plug-in 'cuda' is not installed: build with 'make CUDA=1', which needs the CUDA toolkit"
    quantize -t q4_0 w.tns | cmp - o.tns
}

@test "a plug-in that does not load is named with the loader's words" {
    mkdir broken
    echo 'not a library' >broken/libtensorutils-cuda.so
    TENSORUTILS_PLUGINS=$PWD/broken run -4 quantize -t q4_0 --device cuda w.tns
    assert_output --partial "plug-in 'cuda' does not load"
}

@test "no driver: status 4" {
    TENSORUTILS_EMULATE_COUNT=0 run -4 emulated quantize -t q4_0 --device cuda w.tns
    assert_output "quantize: --device cuda: cuda: no driver, or one that is too old"
}

@test "a device that does not exist: status 4" {
    TENSORUTILS_EMULATE_COUNT=2 run -4 emulated quantize -t q4_0 --device cuda:2 w.tns
    assert_output "quantize: --device cuda:2: cuda:2: no such device (2 found)"
    run -2 emulated quantize -t q4_0 --device cuda:x w.tns
}

@test "--version shows the plug-in" {
    run -0 emulated quantize --version
    assert_line 'plug-ins: cuda'
}

@test "codecs: encode and decode give the CPU's bytes" {
    for t in q4_0 q8_0 nf4 dyn8 fp8 fp8_channel fp8_tensor mxfp8 mxfp4_packed nvfp4_packed int4 terngrad; do
        quantize -t $t w.tns -o cpu.tns
        emulated quantize -t $t --device cuda w.tns -o gpu.tns
        cmp cpu.tns gpu.tns
        quantize decode cpu.tns -o cpu.back
        emulated quantize decode --device cuda gpu.tns -o gpu.back
        cmp cpu.back gpu.back
    done
}

@test "a codec without a kernel: the CPU, and a warning" {
    run -0 --separate-stderr emulated quantize -t q5_0 --device cuda w.tns -o o.tns
    said "quantize: warning: 'q5_0' has no kernel for cuda: on the CPU"
    quantize -t q5_0 w.tns | cmp - o.tns
}

@test "measure: the same figures on the device" {
    emulated quantize measure -t nf4 --device cuda w.tns >gpu
    quantize measure -t nf4 w.tns | cmp - gpu
}

@test "fa-run: attention on the device is near the CPU's" {
    tns-gen q k v --shape 1,9,2,16 -o a.tns
    emulated fa-run --device cuda --causal a.tns -o gpu.tns
    fa-run --causal a.tns | tns-diff --atol 1e-5 - gpu.tns
    run -0 --separate-stderr emulated fa-run check --device cuda --causal a.tns
    said ''
}

@test "fa-run: what no kernel does is done on the CPU, with the reason" {
    tns-gen q k v --shape 1,9,2,16 --dtype f64 -o a.tns
    run -0 --separate-stderr emulated fa-run --device cuda a.tns -o o.tns
    said "fa-run: warning: softmax: on the CPU: no kernel reads this dtype"
    run -2 emulated fa-run --device cuda --sp ring --ranks 2 a.tns -o o.tns
}

# NCCL's transport over a libnccl whose ranks are threads of one process (tests/gpu/nccl.c).
nccl() {
    LD_LIBRARY_PATH=$BUILD/emulated TENSORUTILS_PLUGINS=$BUILD/emulated TENSORUTILS_EMULATE_COUNT=${GPUS:-4} \
        allreduce-bench run --transport nccl "$@"
}

@test "nccl: every collective and reduction that it has is right, and the algorithms over it too" {
    run -0 nccl -n 4 --coll all -b 4K -e 4K --iters 2 --warmup 0 --check 1
    assert_output --partial nccl
    for op in sum prod min max avg mulsum; do
        nccl -n 3 --coll allreduce --op $op --dtype f32 -b 1000 -e 1000 --iters 2 --warmup 0 >/dev/null
    done
    nccl -n 4 --coll allreduce --algo ring -b 4K -e 4K --iters 2 --warmup 0 >/dev/null
    nccl -n 2 --coll allreduce --dtype bf16 --buffers private -b 4K -e 4K --iters 2 --warmup 0 >/dev/null
}

@test "nccl: what is absent is said, with status 4" {
    GPUS=2 run -4 nccl -n 4 -b 4K -e 4K
    assert_output --partial 'nccl: 4 ranks need a GPU each: 2 found'
    GPUS=0 run -4 nccl -n 2 -b 4K -e 4K
    assert_output --partial 'cuda: no driver'
    NCCL_STANDIN_FAILS=1 run -4 nccl -n 2 -b 4K -e 4K
    assert_output --partial 'nccl: unique id: internal error'
    mkdir other
    echo 'not a library' >other/libnccl.so.2
    LD_LIBRARY_PATH=$PWD/other run -4 allreduce-bench run --transport nccl -n 2
    assert_output --partial "transport 'nccl': libnccl.so.2 is not installed"
}
