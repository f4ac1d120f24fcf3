#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# kv-pack: engines' files, layouts, ranks, pages and names through the command.
load helper

data=$ROOT/tests/data/kv

# cache FILE TOKENS [SEED]: a made-up cache of two layers, two heads of 16 columns.
cache() {
    python3 - plain.tns "${@:2}" <<'PY'
import json, random, struct, sys, zlib
name, tokens, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0
ids = [int(t) for t in tokens.split(",")] if "," in tokens else list(range(1, int(tokens) + 1))
T, H, D = len(ids), 2, 16
MAGIC = b"\x89TNS\r\n\x1a\n"
f = open(name, "wb"); n = size = dig = 0
def rec(kind, words=(), nm="", meta=None, dtype=0, block=(0, 0), data=b""):
    global n, size, dig
    nm = nm.encode(); mt = json.dumps(meta, sort_keys=True, separators=(",", ":")).encode() if meta else b""
    var = struct.pack(f"<{len(words)}Q", *words) + nm + mt
    hlen = (64 + len(var) + 63) & ~63
    h = bytearray(struct.pack("<8sBBHHHIIHBBIIIQQII", MAGIC, 1, 0, kind, 0, dtype, hlen, len(mt), len(nm),
        len(words), 0, block[0], block[1], 0, len(data), len(data), 0, 0) + var).ljust(hlen, b"\0")
    hcrc = zlib.crc32(h); struct.pack_into("<I", h, 60, hcrc); pcrc = zlib.crc32(data)
    tail = b"\0" * (-(len(data) + 8) % 64) + struct.pack("<II", pcrc, hcrc) if data else b""
    for part in (h, data, tail): f.write(part)
    n += 1; size += len(h) + len(data) + len(tail); dig = zlib.crc32(struct.pack("<II", hcrc, pcrc), dig)
rec(0x8001, nm="kv", meta={"model": "m", "weights": "w%d" % seed, "n_layer": 2, "n_kv_head": H, "head_dim_k": D,
                           "head_dim_v": D, "rope": "post", "rope_theta": 10000.0})
rec(1, (T,), "kv.tokens", None, 0x20, (1, 4), struct.pack(f"<{T}i", *ids))
for l in range(2):
    for s in "kv":
        # what a token holds depends on the tokens before it, as in a model
        out, state = [], 7 * l + ord(s) + 1000 * seed
        for t in ids:
            state = zlib.crc32(struct.pack("<Ii", state, t))
            r = random.Random(state)
            out += [struct.pack("<e", r.gauss(0, 1)) for _ in range(H * D)]
        rec(1, (T, H, D), f"kv.{l}.{s}", None, 0x210, (1, 2), b"".join(out))
rec(2, (n, size, 0, dig)); f.close()
PY
    kv-pack convert plain.tns -o "$1" && rm plain.tns
}
prepare() { needs_python; }

@test "llama.cpp's own files come back byte for byte" {
    for f in llama_f16.state:version=3 llama_f16_trans.state:version=3,v-trans llama_f16.session:session; do
        kv-pack pack --from llama:heads=2 "$data/${f%%:*}" -o c.tns
        kv-pack unpack --to "llama:${f#*:}" c.tns | cmp - "$data/${f%%:*}"
    done
    kv-pack pack --from llama:heads=2,rot=64 "$data/llama_q8_0.state" |
        kv-pack unpack --to llama | cmp - "$data/llama_q8_0.state"
}

@test "llama.cpp's windows and recurrent states come back byte for byte, and move on" {
    run -2 --separate-stderr kv-pack pack "$data/llama_window.state"
    [[ $stderr == *'llama:pattern=N'* ]]
    kv-pack pack --from llama:heads=2,pattern=4 "$data/llama_window.state" -o w.tns
    tns-ls w.tns | awk '{ print $2, $4 }' | sort | uniq >names
    diff - names <<'END'
21 kv.tokens
21x2x64 kv.3.k
21x2x64 kv.3.v
4x2x64 kv.0.k
4x2x64 kv.0.v
4x2x64 kv.1.k
4x2x64 kv.1.v
4x2x64 kv.2.k
4x2x64 kv.2.v
SHAPE NAME
END
    kv-pack unpack --to llama:pattern=4 w.tns | cmp - "$data/llama_window.state"
    run -3 --separate-stderr kv-pack unpack --to llama w.tns
    [[ $stderr == *'pattern=N'* ]]
    kv-pack convert -d f32 w.tns | kv-pack convert -d f16 | kv-pack unpack --to llama:pattern=4 |
        cmp - "$data/llama_window.state"
    kv-pack convert --tokens 10-21 w.tns -o part.tns
    tns-cat -s kv.0.k part.tns | tns-diff - <(tns-cat -s kv.0.k w.tns) # the last four, as before
    kv-pack convert --tokens 19-21 w.tns | tns-ls | grep -q '2x2x64.*kv.0.v'
    run -3 kv-pack convert --tokens 0-20 w.tns
    assert_output --partial 'a part must end with them'
    run -3 kv-pack convert --layout vllm -b 16 w.tns
    run -3 kv-pack compress --keep knorm --keep-tokens 3 w.tns
    kv-pack pack --from llama:heads=2 "$data/llama_hybrid.state" -o h.tns
    kv-pack unpack --to llama h.tns | cmp - "$data/llama_hybrid.state"
    # what is left of it is not the recurrent state of those tokens
    kv-pack convert --tokens 0-8 h.tns | tns-ls >names
    run ! grep -q recurrent names
}

@test "the same values whether llama.cpp keeps them turned or not" {
    kv-pack pack "$data/llama_f16.state" -o a.tns
    kv-pack pack "$data/llama_f16_trans.state" -o b.tns
    tns-diff --atol 0.01 a.tns b.tns
    kv-pack pack "$data/llama_f16.session" | tns-cat -x kv.all | tns-diff - a.tns
}

@test "quantised rows: the rotation is asked for, and taken back" {
    run -2 --separate-stderr kv-pack pack "$data/llama_q8_0.state"
    [[ $stderr == *'llama:rot=0, 64 or 128'* ]]
    kv-pack pack --from llama:heads=2,rot=64 "$data/llama_q8_0.state" | kv-pack convert --rot 0 -d f16 -o q.tns
    kv-pack pack --from llama:heads=2 "$data/llama_wide_f16.state" -o f.tns
    tns-diff --atol 1 q.tns f.tns
    kv-pack pack --from llama:heads=2,rot=0 "$data/llama_q8_0.state" | kv-pack convert -d f16 -o w.tns
    run -1 tns-diff --atol 1 w.tns f.tns
}

@test "every layout and back, alone and in pages" {
    cache a.tns 21
    for l in $(kv-pack --list=layouts | cut -f1); do
        case $l in ht | ltd) continue ;; esac
        kv-pack convert -l "$l" -b 4 a.tns | kv-pack convert | tns-diff - a.tns || { echo "$l"; return 1; }
    done
    cache b.tns 9
    for l in vllm vllm-fa flashinfer flashinfer-hnd trt nhd-paged hnd-paged; do
        for t in csr padded; do
            cat a.tns b.tns | kv-pack page -b 4 -l "$l" --table $t | kv-pack convert >both.tns
            cat a.tns b.tns | cmp - both.tns || { echo "$l $t"; return 1; }
        done
    done
}

@test "ranks: out to 1, 2 and 4 and together again" {
    cache a.tns 8
    for n in 1 2 4; do
        kv-pack convert --tp $n a.tns -o r.tns
        run -0 kv-pack stat r.tns
        [ ${#lines[@]} = $((n + 1)) ]
        kv-pack convert --tp 1 r.tns | cmp - a.tns
        kv-pack convert --tp 2 r.tns | kv-pack convert --tp 1 | cmp - a.tns
    done
    kv-pack convert --tp 2:1 a.tns -o one.tns
    kv-pack convert --heads 1-2 a.tns | tns-cat -s 'kv.0.k' -o h.tns
    tns-cat -s 'kv.0.k' one.tns | tns-diff - h.tns
    run -3 kv-pack convert --tp 1 one.tns
    assert_output --partial 'rank 1 of 2'
}

@test "parts: layers, tokens and heads; dtypes" {
    cache a.tns 12
    kv-pack convert --tokens 4-8 --layers 1-2 a.tns -o p.tns
    tns-cat -s 'kv.1.k' --slice '4:8' a.tns | tns-cat --rename 'kv.1=kv.0' -o want.tns
    tns-cat -s 'kv.0.k' p.tns | tns-diff - want.tns
    run -0 sh -c 'kv-pack convert --tokens 4-8 a.tns | tns-ls'
    assert_output --partial 'kv.pos'
    kv-pack convert -d f32 a.tns | kv-pack convert -d f16 | tns-diff - a.tns
    run -2 kv-pack convert --tokens 4-99 a.tns
    run -2 kv-pack convert --layers 2- a.tns
}

@test "a shift there and back; against fa-run's rotary embedding" {
    cache a.tns 12
    kv-pack convert -d f32 --shift 5 a.tns -o s.tns
    kv-pack convert --shift -5 s.tns | tns-cat -x kv.pos -o back.tns
    kv-pack convert -d f32 a.tns | tns-diff --atol 1e-5 back.tns -
    run -2 kv-pack convert --shift -1 a.tns
    assert_output --partial 'out of range'
}

@test "page: shared beginnings, copies on write, reference counts" {
    cache a.tns 1,2,3,4,5,6,7,8,9,10,20,21
    cache b.tns 1,2,3,4,5,6,7,8,9,10,30,31
    cache c.tns 1,2,3,4,5,6,7,8,9,10,40
    cat a.tns b.tns c.tns | kv-pack page -b 4 --cow --report r.json -o pool.tns
    grep -q '"blocks":5.*"copies":2' r.json
    kv-pack convert pool.tns | cmp - <(cat a.tns b.tns c.tns)
    cat a.tns b.tns c.tns | kv-pack page -b 4 --report r.json -o pool.tns
    grep -q '"blocks":9.*"copies":0' r.json
}

@test "share: equal names once, saving and seed told, contents compared" {
    cache a.tns 32
    cache b.tns 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,90
    for h in vllm-sha256 vllm-cbor sglang; do
        cat a.tns b.tns | kv-pack share --hash $h -b 4 --verify --report r.json -o pool.tns
        grep -q '"hits":4' r.json
        kv-pack convert pool.tns | cmp - <(cat a.tns b.tns)
    done
    grep -q '"hash_seed"' r.json
    cache c.tns 32 1
    run -3 bash -c 'set -o pipefail; cat a.tns c.tns | kv-pack share -b 4 --verify | wc -c'
    assert_output --partial 'weights differs'
}

@test "hash: published names, events, images" {
    run -0 sh -c 'seq 1 32 | kv-pack hash -q --hash vllm-cbor --hash-seed 0'
    assert_line --index 1 --regexp '3236607068019569386 +202da172482d928bbc42ab25b0151e2b895f13f41002e27b2ceabcfae6d332ea'
    run -0 sh -c 'seq 1 8 | kv-pack hash -q --hash sglang -b 4'
    assert_line --index 1 --partial '-3488128144981237669'
    run -0 sh -c 'seq 1 16 | kv-pack hash -q --hash vllm-cbor --hash-seed 0 --item img0:3:4'
    assert_line --index 1 --partial fe8173b41fe14937d9658320000b3fb327e56dd8193aa1910156d40bb3f5e395
    run -0 --separate-stderr sh -c 'seq 1 16 | kv-pack hash --hash vllm-cbor --hash-seed 42'
    assert_line --index 1 --partial 476e88fb0c175c0b4ef0343e158b5157c2ac537d37d97830e235fcc84bc5706d
    [[ $stderr == *"vllm-cbor, seed '42', root "* ]]
    run -0 sh -c 'seq 1 16 | kv-pack hash -q --json'
    assert_line --index 1 --partial '"seed":"vllm-none-hash"'
    run -3 sh -c 'echo 1 2 -3 | kv-pack hash'
    run -3 sh -c 'echo 99999999999 | kv-pack hash'
    run -2 sh -c 'seq 1 16 | kv-pack hash --hash vllm-xxhash'
}

@test "stat: why a cache misses" {
    cache a.tns 32
    cache b.tns 1,2,3,4,5,6,90,8,9,10,11,12,13,14,15,16
    run -1 kv-pack stat --why-miss a.tns b.tns
    assert_line --index 0 'token 6 is the first that differs'
    assert_line --index 1 --partial 'shorter than one block'
    run -0 kv-pack stat --why-miss -b 4 a.tns b.tns
    cache c.tns 32 1
    run -1 kv-pack stat --why-miss a.tns c.tns
    assert_line --index 2 "identity: weights differs: 'w0' and 'w1'"
    run -0 kv-pack stat --shared -b 4 a.tns b.tns c.tns
    assert_line --index 1 --regexp '^ *6 +1 +32 +16 +same'
}

@test "unpack refuses what is another model's" {
    cache a.tns 8
    run -1 kv-pack unpack --to raw --weights other a.tns -o x
    assert_output --partial "weights differs"
    only_files a.tns
    kv-pack unpack --to raw --weights other -f a.tns -o x
}

@test "chunks of LMCache, pages of HiCache, buckets of Mooncake: out and in" {
    cache a.tns 40
    tns-cat -s 'kv.tokens' a.tns | kv-pack stat - >/dev/null || true
    kv-pack convert --tokens 0-32 a.tns -o w.tns
    seq 1 40 >ids
    kv-pack unpack --to lmcache:chunk=16 --model org/m -f a.tns -o lm 2>err
    grep -q 'last 8 tokens fill no chunk' err
    [ "$(find lm -name '*.data' | wc -l)" = 2 ]
    find lm -name 'org-m@1@0@*@half.data' | grep -q .
    kv-pack pack --from lmcache:heads=2,chunk=16,dtype=half --model org/m --tokens ids lm | tns-diff - w.tns
    kv-pack unpack --to hicache:chunk=16 a.tns -o hi
    kv-pack pack --from hicache:chunk=16,layers=2,heads=2,dim=16,dtype=f16 --model m --tokens ids hi | tns-diff - w.tns
    kv-pack unpack --to hicache:chunk=8,layout=sglang-page a.tns -o hp
    kv-pack pack --from hicache:chunk=8,layers=2,heads=2,dim=16,dtype=f16,layout=sglang-page --model m --tokens ids hp |
        tns-diff - a.tns
    kv-pack unpack --to mooncake:chunk=16 a.tns -o mc
    kv-pack pack --from mooncake:layers=2,heads=2,dim=16,dtype=f16 --tokens ids mc/0.bucket | tns-diff - w.tns
    rm mc/0.meta
    run -3 kv-pack pack --from mooncake:layers=2,heads=2,dim=16,dtype=f16 mc/0.bucket
    assert_output --partial orphan
    truncate -s -1 hi/*.bin
    run -3 kv-pack pack --from hicache:chunk=16,layers=2,heads=2,dim=16,dtype=f16 --model m --tokens ids hi
}

@test "past_key_values: out as torch and safetensors, and in" {
    cache a.tns 12
    for to in torch safetensors; do
        kv-pack unpack --to hf:as=$to a.tns -o "c.$to"
        kv-pack pack --from hf --model m "c.$to" -o b.tns
        tns-cat -x kv.tokens a.tns | tns-diff - b.tns
        seq 1 12 >ids
        kv-pack pack --from hf --tokens ids "c.$to" | tns-diff - a.tns
        run -3 kv-pack pack --from hf --tokens <(seq 1 11) "c.$to"
    done
}

@test "raw dumps of a described layout" {
    cache a.tns 12
    kv-pack convert -l vllm -b 4 a.tns -o v.tns
    kv-pack unpack --to raw v.tns -o dump
    kv-pack pack --from raw:layout=vllm,layers=2,heads=2,dim=16,dtype=f16,block=4,blocks=3 dump |
        tns-ls | grep kv. >list
    [ "$(wc -l <list)" = 4 ]
    run -3 kv-pack pack --from raw:layout=vllm,layers=2,heads=2,dim=16,dtype=f16,block=4,blocks=4 dump
    run -3 kv-pack pack --from raw:layout=vllm,layers=1,heads=2,dim=16,dtype=f16,block=4,blocks=3 dump
    run -2 kv-pack pack --from raw:layers=2 dump
    kv-pack unpack --to raw a.tns -o rows
    raw=raw:layers=2,heads=2,dim=16,dtype=f16,tokens=12
    kv-pack pack --from "$raw" --tokens <(seq 1 12) rows | tns-diff - a.tns
    run -2 kv-pack pack --from "$raw" --tokens <(seq 1 11) rows
    assert_output --partial '11 token ids for tokens=12'
}

@test "tables that lie are refused with the entry" {
    cache a.tns 12
    kv-pack page -b 4 a.tns -o pool.tns
    bad() { # RECORD BYTES-IN-HEX WANT: another payload for a record
        python3 - "$@" <<'PY'
import struct, sys, zlib
d = bytearray(open("pool.tns", "rb").read()); name = sys.argv[1].encode(); new = bytes.fromhex(sys.argv[2])
at = 0; dig = 0
while True:
    h = struct.unpack_from("<8sBBHHHIIHBBIIIQQII", d, at); kind, hlen, nlen, words, plen = h[3], h[6], h[8], h[9], h[14]
    if kind == 2: break
    nm = bytes(d[at + 64 + 8 * words: at + 64 + 8 * words + nlen]); pcrc = 0
    end = at + hlen + ((plen + 8 + 63) & ~63 if plen else 0)
    if nm == name: d[at + hlen: at + hlen + len(new)] = new; 
    if plen:
        pcrc = zlib.crc32(bytes(d[at + hlen: at + hlen + plen])); struct.pack_into("<I", d, end - 8, pcrc)
    dig = zlib.crc32(struct.pack("<II", h[17], pcrc), dig); at = end
struct.pack_into("<Q", d, at + 64 + 24, dig); struct.pack_into("<I", d, at + 60, 0)
struct.pack_into("<I", d, at + 60, zlib.crc32(bytes(d[at: at + 128])))
open("bad.tns", "wb").write(d)
PY
        run ${4:--3} kv-pack convert bad.tns
        assert_output --partial "$3"
    }
    bad kv_indices ffffffff 'page 0 is -1'
    bad kv_indices 63000000 'page 0 is 99'
    bad kv_last_page_len 00000000 'has 0 of 1 to 4'
    bad kv_last_page_len 05000000 'has 5 of 1 to 4'
    bad kv_indptr 01000000 'begins with 1'
    (tns-gen -d i64 -s 2 kv_indptr; tns-cat -s 'kv_i*s' -s 'kv_last*' -s 'kv.*' pool.tns) | tns-cat --join -o long.tns
    run -3 kv-pack convert long.tns
    assert_output --partial "'kv_indptr': expected i32"

    # a page in two tables: as another block, behind other tokens, behind the same ones
    cache b.tns 7,2,3,4,5,6,7,8,9,10,11,12
    cat a.tns b.tns | kv-pack page -b 4 -o pool.tns
    indices() { printf '%02x000000' "$@"; }
    bad kv_indices "$(indices 0 1 2 3 4 5)" '' -0
    bad kv_indices "$(indices 0 1 2 3 4 1)" 'page 1 is block 1 of sequence 0 and block 2 of sequence 1'
    bad kv_indices "$(indices 0 1 0)" 'page 0 is block 0 of sequence 0 and block 2 of sequence 0'
    bad kv_indices "$(indices 0 1 2 3 4 2)" \
        'page 2 is block 2 of sequences 0 and 1, with different tokens before it'
    cat a.tns a.tns | kv-pack page -b 4 -o pool.tns
    bad kv_indices "$(indices 0 1 2 3 4 2)" '' -0
    kv-pack convert bad.tns | cmp - <(cat a.tns a.tns)
}

@test "compress and back: lossless codecs, schemes in the stream, a report" {
    cache a.tns 64
    for c in planes zlib zstd:level=3 lz4 zlib:level=1,strategy=rle planes:order=channel; do
        kv-pack compress -c "$c" a.tns | kv-pack decompress | cmp - a.tns || { echo "$c"; return 1; }
    done
    kv-pack convert -d bf16 a.tns -o b.tns
    kv-pack compress -c split16 b.tns | kv-pack decompress | cmp - b.tns
    for c in kivi:group=16,residual=32 kv4:group=16 fp8 bfp cachegen; do
        kv-pack compress -c "$c" --report r.json a.tns -o c.tns
        grep -q '"worst_output_rel"' r.json
        kv-pack decompress c.tns | tns-diff --atol 2 - a.tns
        run -1 sh -c 'kv-pack decompress c.tns | tns-diff - a.tns'
    done
    kv-pack compress -c fp8 --codec-v planes a.tns | kv-pack decompress | tns-cat -s 'kv.*.v' -o v.tns
    tns-cat -s 'kv.*.v' a.tns | tns-diff - v.tns
    run -2 kv-pack convert c.tns
    assert_output --partial 'kv-pack decompress first'
    run -0 --separate-stderr kv-pack compress -c kivi:group=4,residual=4096 a.tns -o c.tns # so many tokens stay as they are
    assert_equal "$output" ''
    assert_regex "$stderr" '^kv-pack: warning: codec kivi:group=4,residual=4096 has made nothing smaller'
    run -0 --separate-stderr kv-pack compress -v -c fp8 a.tns -o c.tns
    assert_line --index 0 --regexp '^LAYER +HEAD +RATIO +K_REL'
}

@test "fewer tokens keep their positions" {
    cache a.tns 8
    kv-pack compress --keep streaming:sinks=2 a.tns | kv-pack decompress -o k.tns
    tns-cat -s kv.pos k.tns | tns-export --to npy -o pos.npy
    python3 -c 'import struct; d = open("pos.npy", "rb").read(); print(struct.unpack("<4i", d[-16:]))' >out
    grep -qF '(0, 1, 6, 7)' out
    run -0 sh -c 'tns-ls k.tns'
    assert_output --partial '4x2x16'
    kv-pack compress --keep knorm --keep-tokens 3 a.tns | kv-pack decompress | tns-check -
    run -2 kv-pack compress --keep h2o a.tns
    assert_output --partial 'attn.N'
}

@test "spill and fetch: the longest beginning, of the right model only" {
    cache a.tns 40
    cache b.tns 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,99,98,97,96
    run -0 kv-pack spill -d store -b 8 a.tns b.tns
    assert_output '7 blocks, 5 of them new, 0 evicted, 4 tokens fill no block'
    seq 1 40 >ids
    kv-pack fetch -d store ids | tns-diff - a.tns
    (seq 1 20; echo 7) >other
    run -0 kv-pack fetch -d store other -o got.tns
    assert_output --regexp '^kv-pack: 16 of [0-9]+ tokens, in 2 blocks$'
    kv-pack fetch -q -d store other -o got.tns
    kv-pack convert --tokens 0-16 a.tns | tns-diff got.tns -
    kv-pack fetch -d store --each ids | tns-ls -a | grep -c END >ends || true
    run -1 kv-pack fetch -d store --weights w1 ids
    run -0 kv-pack verify -d store
    [ "$(grep -c good <<<"$output")" = 5 ]
    cache c.tns 40 1
    kv-pack spill -d store -b 8 c.tns
    run -2 kv-pack fetch -d store ids
    assert_output --partial 'of 2 kinds fit'
    kv-pack fetch -d store --weights w1 ids | tns-diff - c.tns
}

@test "the prompts of a store, and what they share" {
    cache a.tns 40
    cache b.tns 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,99,98,97,96,95,94,93,92
    cache c.tns 40 1
    kv-pack spill -d store -b 8 a.tns b.tns
    run -0 kv-pack stat -d store --json
    [ "$(grep -c '"tokens":40,"blocks":5,.*"shared_tokens":16,"shared_blocks":2' <<<"$output")" = 1 ]
    [ "$(grep -c '"tokens":24,"blocks":3,.*"shared_tokens":16,"shared_blocks":2' <<<"$output")" = 1 ]
    kv-pack spill -d store -b 8 c.tns # another model's prompt shares nothing
    kv-pack stat -d store --json >all
    [ "$(grep -c '"tokens":40,"blocks":5,.*"shared_tokens":0,"shared_blocks":0' all)" = 1 ]
    [ "$(grep -c '"last_block"' all)" = 3 ]
    run -2 kv-pack stat -d store a.tns
    run -4 kv-pack stat -d nothing
}

@test "a damaged block is no block; orphans go" {
    cache a.tns 32
    kv-pack spill -d store -b 8 a.tns
    kv-pack verify -d store --json | grep '"index":1' | sed 's/.*"block":"\([0-9a-f]*\)".*/\1/' >name
    block=$(find store/blocks -name "$(cat name).tns")
    printf 'X' | dd of="$block" bs=1 seek=700 conv=notrunc status=none
    run -1 kv-pack verify -d store
    assert_output --partial broken
    seq 1 32 >ids
    kv-pack fetch -d store ids -o got.tns 2>err
    grep -q removed err
    kv-pack convert --tokens 0-8 a.tns | tns-diff got.tns -
    run -0 kv-pack gc -d store
    assert_output --partial '1 blocks stay; removed: 0 broken, 2 orphans'
    kv-pack spill -d store -b 8 a.tns
    kv-pack fetch -d store ids | tns-diff - a.tns
}

@test "the store keeps to its limit, tails of chains first" {
    cache a.tns 32
    kv-pack spill -d store -b 8 a.tns
    size=$(find store/blocks -name '*.tns' -printf '%s\n' | sort -n | tail -1)
    kv-pack gc -d store --limit $((size * 2)) >/dev/null
    seq 1 32 >ids
    kv-pack fetch -d store ids -o got.tns
    kv-pack convert --tokens 0-16 a.tns | tns-diff got.tns -
    cache b.tns 7,7,7,7,7,7,7,7,8,8,8,8,8,8,8,8
    kv-pack spill -d store -b 8 --limit $((size * 2)) b.tns
    run -1 kv-pack fetch -d store ids
    run -0 kv-pack gc -d store --age 1000h
    assert_output --partial '2 blocks stay'
}

# kills N: spill is killed N times at random, by turns within a limit and without one. What is
# then in the store is whole, and without a limit all that was there before still is. Instants are
# chosen out of what a whole spill takes here.
kills() {
    local had=0 some=0 whole
    cache a.tns 64
    seq 1 64 >ids
    whole=${EPOCHREALTIME/./}
    kv-pack spill -d store -b 4 a.tns >/dev/null
    whole=$((${EPOCHREALTIME/./} - whole))
    for i in $(seq "$1"); do
        local limit=()
        case $((i % 10)) in 0 | 5) rm -rf store; had=0 ;; [6-9]) limit=(--limit 24K) ;; esac
        kv-pack spill -d store -b 4 "${limit[@]}" a.tns >/dev/null 2>&1 &
        printf -v delay '%d.%06d' 0 $((RANDOM * 30 % whole))
        sleep "$delay"
        kill -9 $! 2>/dev/null || true
        wait $! 2>/dev/null || true
        [ -d store/blocks ] || continue
        kv-pack verify -d store >out 2>err || { cat out err; return 1; }
        n=0
        if kv-pack fetch -d store ids -o got.tns 2>/dev/null; then
            n=$(kv-pack stat --json got.tns | grep -o '"tokens":[0-9]*' | head -1 | cut -d: -f2)
            kv-pack convert --tokens "0-$n" a.tns | tns-diff got.tns - || return 1
        fi
        if [ ${#limit[@]} = 0 ]; then
            [ "$n" -ge "$had" ] || { echo "lost: $had tokens, now $n"; return 1; }
            [ "$n" = 64 ] || some=$((some + 1))
        fi
        had=$n
    done
    [ "$1" -lt 200 ] || [ "$some" -gt 0 ] # or nothing was interrupted
    kv-pack spill -d store -b 4 a.tns >/dev/null
    kv-pack fetch -d store ids | tns-diff - a.tns
}
@test "killed at random instants, the store serves no lost or wrong block" { kills 20; }
# bats test_tags=slow
@test "the same two hundred times" { kills 200; }

@test "processes share a store" {
    cache a.tns 64
    for i in 1 2 3 4; do kv-pack spill -d store -b 4 --limit 60K a.tns >/dev/null & done
    wait
    kv-pack verify -d store >/dev/null
    kv-pack spill -d store -b 4 a.tns >/dev/null
    seq 1 64 | kv-pack fetch -d store | tns-diff - a.tns
}

@test "replay: worked traces, faults told with their lines, a chart" {
    printf '%s\r\n\r\n' '{"timestamp":0,"input_length":3,"hash_ids":[0,1,2]}' \
        '{"timestamp":5,"input_length":3,"hash_ids":[0,1,3]}' '{"timestamp":1,"input_length":9,"hash_ids":["x","y"]}' >t
    run -0 --separate-stderr kv-pack replay -b 1 -n 4,unlimited --policy lru --policy adaptive --svg c.svg t
    assert_line --index 1 --regexp '^lru +4 +4 +2 '
    [[ $stderr == *'t: line 5: the count of hash_ids'* ]]
    [[ $stderr == *'line 5: time goes back'* ]]
    grep -q '</svg>' c.svg
    run -0 kv-pack replay -b 1 --groups --waste t
    assert_output --partial 'saved, tree of groups'
    run -2 kv-pack replay -b 1 --timed t
    assert_output --partial 't: line 5: times must not go back'
    printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:17:03.9799600,4808,10' >azure
    run -2 --separate-stderr kv-pack replay azure
    assert_output ''
    [[ $stderr == *'azure: no hash_ids'* ]]
    run -3 sh -c 'echo "{}" | kv-pack replay'
    assert_output --partial 'line 1: no input_length'
    run -2 kv-pack replay --policy nonsense -b 1 t
}

@test "plan: bytes, users and times of a configuration" {
    echo '{"model_type":"llama","num_hidden_layers":60,"hidden_size":7168,"num_attention_heads":56,"num_key_value_heads":8,"head_dim":128}' >c.json
    run -0 kv-pack plan --config c.json --params 34e9 --ctx 4000,50000
    assert_line --index 1 --regexp '^ +4000 +983040000 +0.915527 +12 +0.89385 +8.62288 +0.098304 '
    assert_line --index 2 --regexp '^ +50000 +12288000000 +11.4441 +0 +14.3436 +10.036 +1.2288 '
    run -0 kv-pack plan --config c.json --ctx 1000 --store q8_0 --page 2M --json
    assert_line --index 1 --partial '"kv_bytes":130560000'
    run -2 kv-pack plan --config c.json --store nonsense
    run -0 kv-pack plan --config c.json --ctx 1000 --map --json
    [ ${#lines[@]} = 7 ]
    assert_line --index 1 --partial '"page":65536,"huge":false,"page_tokens":32,"group_bytes":7864320,"groups":32,'
    assert_line --index 4 --partial '"page":2097152,"huge":false,"page_tokens":1024,"group_bytes":251658240,"groups":1,'
    assert_line --index 4 --regexp '"reserved":2097152,"waste":0.0234[0-9]*,"map_us":[0-9]'
    assert_line --index 5 --regexp '"page":2097152,"huge":true,.*,"touch_us":[0-9].*,"ahead_us":[0-9]'
    run -2 kv-pack plan --config c.json --map --page 128M
    run -2 kv-pack plan --config c.json --map --page 1000
    assert_output --partial '2048 bytes on pages of 1000'
}

@test "the same attention over pages and over one reservation for each request" {
    cache a.tns 21
    cache b.tns 40,41,42,43,44,45,46,47,48
    tns-gen --seed 3 -s 2,1,4,16 -d f16 q -o q.tns
    cat a.tns b.tns | kv-pack page -b 16 --table padded -o pool.tns
    cat a.tns b.tns | kv-pack page -b 64 -l vattention --table padded -o whole.tns
    for f in pool whole; do
        cat q.tns $f.tns | tns-cat --join -s q -s 'kv.1.*' -s block_table -s seqlens_k -r 'kv\.1\.=' |
            fa-run -o $f.o.tns
    done
    tns-diff pool.o.tns whole.o.tns
}

@test "stat: a compressed cache without token ids has the tokens of its records" {
    cache a.tns 21
    tns-cat -x kv.tokens a.tns -o kv.tns
    kv-pack compress -c fp8 kv.tns -o c.tns
    kv-pack stat --json c.tns >out
    grep -q '"tokens":21,' out
    run kv-pack stat --json kv.tns
    [[ $output == *'"tokens":21,'* ]]
}
