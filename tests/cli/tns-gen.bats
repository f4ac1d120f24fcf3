# SPDX-License-Identifier: Apache-2.0
load helper

@test "the bytes do not depend on the number of threads" {
    local dtype
    for dtype in f32 bf16 i4 f6_e2m3 f4_e2m1 f8_e4m3fn c64 u1; do
        tns-gen w:dtype=$dtype --shape 1000,3001 -j1 -o a.tns
        tns-gen w:dtype=$dtype --shape 1000,3001 -j7 -o b.tns
        cmp a.tns b.tns
    done
}

@test "every dtype that is no block format, checked strictly" {
    local dtype
    for dtype in i8 i16 i32 i64 u8 u16 u32 u64 i4 u4 i2 u2 u1 f16 f32 f64 c64 c128 bool bf16 \
        f8_e4m3fn f8_e4m3fnuz f8_e5m2 f8_e5m2fnuz f8_e8m0 f6_e2m3 f6_e3m2 f4_e2m1; do
        tns-gen "w:dtype=$dtype,shape=7x3" | tns-check >/dev/null
    done
    run -2 tns-gen w:dtype=q4_0,shape=32
}

@test "arange and constant are exact" {
    tns-gen n:shape=5,dtype=i32,dist=arange,lo=-2,step=3 | tail -c +129 | head -c 20 | xxd -p >got
    echo feffffff0100000004000000070000000a000000 | diff - got
    tns-gen n:shape=3,dtype=i4,dist=arange,lo=-1 | tail -c +129 | head -c 2 | xxd -p >got
    echo 0f01 | diff - got # -1, 0 in one byte, 1 in the next
    tns-gen n:shape=2,dtype=bf16,dist=constant,value=1.5 | tail -c +129 | head -c 4 | xxd -p >got
    echo c03fc03f | diff - got
}

@test "distributions have the moments they promise" {
    run -0 bash -c "tns-gen n:mean=3,std=2 u:dist=uniform,lo=-1,hi=1 --shape 1000000 |
        tns-ls --stats --json | grep tensor.,"
    local n u
    n=${lines[0]} u=${lines[1]}
    # Five standard errors: 2/1000 and 0.577/1000.
    awk -v n="$n" -v u="$u" 'function get(s, k) { sub(".*\"" k "\":", "", s); return s + 0 }
        BEGIN { exit !(get(n, "mean") > 2.99 && get(n, "mean") < 3.01 && get(n, "std") > 1.99 &&
            get(n, "std") < 2.01 && get(u, "min") >= -1 && get(u, "max") < 1 &&
            get(u, "mean") > -0.003 && get(u, "mean") < 0.003) }'
}

@test "seed and name choose the values" {
    tns-gen a --shape 8 >a.tns
    tns-gen a --shape 8 --seed 0 | cmp - a.tns
    tns-gen a --shape 8 --seed 1 >b.tns
    run ! cmp -s a.tns b.tns
    tns-gen a:seed=1 --shape 8 | cmp - b.tns
}

@test "outlier channels stand out" {
    tns-gen x:dist=outlier,channels=2,scale=100 --shape 4096,64 |
        tns-ls --stats --json | grep '"name":"x"' >got
    # deviation of 62 channels of 1 and 2 of 100: sqrt((62 + 20000) / 64) = 17.7
    awk '{ sub(/.*"std":/, ""); exit !($0 + 0 > 17 && $0 + 0 < 18.5) }' got
}

@test "wrong requests are usage errors that name the tensor" {
    local bad
    for bad in a a:shape=2x a:shape=9223372036854775808 a:shape=4294967296x4294967296x2 \
        a:shape=2,dtype=f33 a:shape=2,dist=gauss a:shape=2,what=1 a:shape=2,mean=x; do
        run -2 --separate-stderr tns-gen "$bad"
        assert_regex "$stderr" "'?$bad|shape"
        refute_output
    done
}

@test "a large shape costs no memory" {
    sanitized && skip "a sanitizer maps more than the limit"
    ulimit -v 800000
    run -0 bash -c 'tns-gen big:dtype=u8 --shape 268435456 -j2 | tail -c 64 | wc -c'
    assert_output 64
}

@test "a name that no tensor can have is a usage error; one is not many" {
    run -2 tns-gen $'a\x01b:shape=2' -o x.tns
    assert_line --index 0 "tns-gen: 'a?b:shape=2': a name with a control byte or ill-formed UTF-8"
    run -2 tns-gen $'a\xff:shape=2' -o x.tns
    [ ! -e x.tns ]
    tns-gen a:shape=2 -o one.tns
    tns-export one.tns -o one.safetensors
    run -0 tns-import -v one.safetensors -o y.tns
    assert_output --partial 'safetensors, 1 tensor of 8 bytes'
    run -0 shard-ckpt convert -v --to hf one.tns out
    assert_output --partial 'out: 1 tensor, 8 B in 1 file'
    run -0 shard-ckpt diff one.tns out
    assert_output 'equal: 1 tensor'
}
