# SPDX-License-Identifier: Apache-2.0
# What cmd/common promises of every command, shown with the small tns- ones.
load helper

prepare() {
    tns-gen a b:dtype=bf16 c:dtype=i4,dist=arange --shape 3,5 -o x.tns
}

@test "an unreadable file is status 4, the others are still processed" {
    [ "$(id -u)" != 0 ] || skip "root reads everything"
    cp x.tns y.tns && chmod 0 y.tns
    run -4 tns-ls y.tns x.tns
    assert_output --partial 'y.tns: cannot open'
}

@test "several inputs: each failure is told, the highest status counts" {
    head -c 100 x.tns >short.tns
    run -4 --separate-stderr tns-ls short.tns ./absent x.tns
    assert_equal "${#stderr_lines[@]}" 2
    assert_output --partial 'bf16'
}

@test "binary output to a terminal is refused, unless -f" {
    needs_terminal
    run -2 script -qec "tns-cat x.tns" /dev/null
    assert_output --partial 'will not write binary data to a terminal'
    run -0 script -qec "tns-cat -f x.tns" /dev/null
}

@test "no operand and standard input a terminal: usage instead of waiting" {
    needs_terminal
    run -2 script -qec "tns-ls" /dev/null
    assert_output --partial 'Usage: tns-ls'
    assert_output --partial 'standard input is a terminal'
}

@test "-o appears whole or not at all" {
    tns-cat x.tns -o y.tns
    cmp x.tns y.tns
    head -c 300 x.tns >short.tns
    run -3 tns-cat short.tns -o z.tns
    only_files short.tns x.tns y.tns
    cp x.tns before.tns
    run -3 tns-cat short.tns -o x.tns
    cmp x.tns before.tns
}

@test "a signal leaves no file behind, and is the status" {
    local signal
    for signal in INT TERM HUP; do
        mkfifo pipe
        tns-cat pipe -o y.tns &
        local pid=$!
        exec 9>pipe
        head -c 300 x.tns >&9
        for _ in {1..200}; do # until the temporary file is there
            [ "$(find . -type f | wc -l)" -gt 1 ] && break
            sleep 0.02
        done
        # A background job of a script ignores SIGINT, and keeps ignoring it.
        [ "$signal" = INT ] && signal=TERM
        kill -s "$signal" $pid
        local got=0
        wait $pid || got=$?
        exec 9>&-
        rm pipe
        assert_equal "$(kill -l "$got")" "$signal"
        only_files x.tns
    done
}

@test "what kill -9 leaves has the name that tensorutils(7) gives, and goes as it says" {
    mkfifo pipe
    tns-cat pipe -o y.tns &
    local pid=$!
    exec 9>pipe
    head -c 300 x.tns >&9
    for _ in {1..200}; do
        [ "$(find . -type f | wc -l)" -gt 1 ] && break
        sleep 0.02
    done
    kill -9 $pid
    wait $pid || :
    exec 9>&-
    rm pipe
    find . -name '.tensorutils-????????????' | grep -q .
    grep -qF 'find DIR -name \(aq.tensorutils-????????????\(aq -delete' "$ROOT/man/tensorutils.7"
    find . -name '.tensorutils-????????????' -delete
    only_files x.tns
}

@test "SIGPIPE: killed quietly by default, status 4 where it is ignored" {
    run bash -c 'tns-gen big --shape 4194304 2>err | head -c 1 >/dev/null; echo "${PIPESTATUS[0]}"'
    assert_output 141
    run bash -c "trap '' PIPE; tns-gen big --shape 4194304 2>err | head -c 1 >/dev/null; echo \"\${PIPESTATUS[0]}\""
    assert_output 4
    assert_equal "$(cat err)" ''
}

@test "messages hold no control bytes" {
    run -4 --separate-stderr tns-ls $'a\e[31m\nb'
    assert_equal "${#stderr_lines[@]}" 1
    refute_regex "$stderr" $'\e'
}

@test "--json begins with a schema and ends with the status, also after a failure" {
    run -0 tns-ls --json x.tns
    assert_line --index 0 --regexp '^\{"schema":"tensorutils.tns-ls/1","version":"[0-9.]+","command":"tns-ls"\}$'
    assert_line '{"end":true,"status":0}'
    head -c 300 x.tns >short.tns
    run -3 --separate-stderr tns-ls --json short.tns
    assert_equal "${lines[-1]}" '{"end":true,"status":3}'
    run -4 --separate-stderr tns-ls --json ./absent
    assert_equal "${lines[-1]}" '{"end":true,"status":4}'
    run -0 tns-ls --format json x.tns
    assert_line '{"end":true,"status":0}'
}

@test "--report writes the JSON beside the text" {
    tns-ls --report r.json x.tns >text
    tns-ls --json x.tns | diff - r.json
    tns-ls x.tns | diff - text
}

@test "--report - takes the text's place, and is refused where the stream is" {
    tns-ls --report - x.tns | diff - <(tns-ls --json x.tns)
    run -2 quantize -t bf16 --report - x.tns
    assert_output --partial 'standard output carries the data'
}

@test "a command that writes a stream says nothing; its table comes with -v" {
    tns-gen w --shape 4,64 -o w.tns
    assert_equal "$(quantize -t q8_0 --report r.json w.tns -o q.tns)" ''
    assert_equal "$(quantize -t q8_0 -v w.tns -o q.tns 2>err | head -1 | cut -c1-10)" 'FROM  TYPE'
    grep -q '"type":"q8_0"' r.json
    assert_equal "$(quantize -t q8_0 -v w.tns 2>err | tns-check -)" "$(tns-check - <q.tns)"
}

@test "a damaged first part is never followed by END" {
    local n
    for n in 10 64 130 200 400 500; do
        head -c $n x.tns | tns-cat >out.tns 2>/dev/null && return 1
        ! ends out.tns
    done
}

@test "/dev/full and a closed output with data" {
    run -4 bash -c 'tns-cat x.tns >/dev/full'
    assert_output --partial 'No space left on device'
    run -4 bash -c 'tns-cat x.tns >&-'
    run -4 bash -c 'tns-ls x.tns >/dev/full'
}

@test "progress: nothing on a pipe, a bar when asked for" {
    run -0 --separate-stderr bash -c 'tns-gen big --shape 4194304 >/dev/null'
    assert_equal "$stderr" ''
    run -0 --separate-stderr bash -c 'tns-gen big --shape 4194304 --progress >/dev/null'
    assert_regex "$stderr" '%'
    run -0 --separate-stderr bash -c 'pipe-sched optimize -p 8 -m 16 --memory-cap 4 --progress >/dev/null'
    assert_regex "$stderr" '% [0-9]+:[0-9][0-9] left' # states: no rate in bytes
}

@test "a name that no table has: the nearest one, whatever its case, and where to look" {
    run -2 pipe-sched plan --gpu H100 --gpus 8 --batch 8
    assert_line --index 0 "pipe-sched: --gpu: 'H100': no such name (--list=gpus); did you mean 'h100'?"
    run -2 pipe-sched gen -s interleaved -p 4 -m 8
    assert_output --partial "did you mean 'interleaved-1f1b' or 'interleaved-zb'?"
    run -2 quantize -t Q4_K_M x.tns
    assert_line --index 0 "quantize: --type: 'Q4_K_M': no such name (--list=codecs, --list=mixtures, --list=dtypes); did you mean 'q4_k_m'?"
    run -2 pipe-sched compare -p 2 -m 2 gpip
    assert_output --partial "did you mean 'gpipe'?"
    run -2 pipe-sched compare -p 2 -m 2 nothing-like-it
    refute_output --partial 'did you mean'
    run -2 allreduce-bench run --algo rng
    assert_output --partial "did you mean 'ring'?"
    run -2 allreduce-bench run --op max,min
    run -2 fa-run --transport SHM x.tns
    assert_output --partial "did you mean 'shm'?"
    run -2 kv-pack hash --hash VLLM-CBOR
    assert_output --partial "did you mean 'vllm-cbor'?"
    run -2 pipe-sched plan --link nvlink --gpus 8 --batch 8
    assert_output --partial "did you mean 'nvlink3', 'nvlink4' or 'nvlink5'?"
    run -2 pipe-sched --list=layouts
    run -2 pipe-sched --list=schedule
    assert_output --partial "did you mean 'schedules'?"
}

@test "a word that means nothing here is not taken for another" {
    run -2 quantize --bits 4 x.tns
    refute_output --partial 'did you mean'
    run -2 quantize --tpye q8_0 x.tns
    assert_output --partial "unknown option '--tpye'; did you mean '--type'?"
    run -2 quantize -t gptq x.tns
    assert_output --partial "did you mean 'gptq"
    assert_output --partial "'gptq4'"
    run -2 tns-cat --sel a x.tns
    assert_line --index 0 "tns-cat: unknown option '--sel'; did you mean '--select'?"
    run -2 quantize -t q4 x.tns
    assert_output --partial "'q4_0'"
    run -2 shard-ckpt help
    assert_output --partial "unknown subcommand 'help'; did you mean '--help'?"
    run -2 allreduce-bench -n 2
    assert_line --index 0 "allreduce-bench: unknown subcommand '2': the subcommand stands before its options ('-n')"
    run -2 fa-run chekc x.tns
    assert_line --index 0 "fa-run: unknown subcommand 'chekc'; did you mean 'check'?"
    run -2 quantize mesure x.tns
    assert_output --partial "did you mean 'measure'?"
    cp x.tns mesure
    quantize mesure -o y.tns # a file of that name
    run -4 quantize other.tns
    assert_output --partial 'other.tns: cannot open'
}

@test "dtypes: one list, where an option takes one; a wrong one is named once" {
    local command
    for command in tns-cat tns-gen quantize 'quantize decode' shard-ckpt 'shard-ckpt convert' kv-pack \
        'allreduce-bench run' 'fa-run bench'; do
        $command --list=dtypes | grep -P '^bf16\t16 bits; also bfloat16$'
    done
    tns-cat --list=dtypes | grep -P '^f16\t16 bits; also float16, half, fp16$'
    tns-cat --list=dtypes | grep -P '^q4_k\t256 elements in 144 bytes$'
    tns-cat --list=tables | grep -P '^dtypes\t'
    run -2 tns-check --list=dtypes
    run -2 tns-cat -d bfloat17 x.tns
    assert_line --index 0 "tns-cat: --dtype: 'bfloat17': unknown dtype; did you mean 'bfloat16'?"
    run -2 tns-gen w:shape=4,dtype=F16
    assert_line --index 0 "tns-gen: 'w:shape=4,dtype=F16': dtype: 'F16': unknown dtype; did you mean 'f16'?"
    run -2 tns-cat -d 'a=F32' x.tns
    assert_output --partial "'F32': unknown dtype; did you mean 'f32'?"
}

# each_command: all there are, with their subcommands, a line each.
each_command() {
    local command
    for command in "$BIN"/*; do
        command=${command##*/}
        case $command in
        *-*) echo "$command" ;;
        esac
        "$command" --list=subcommands 2>/dev/null | sed "s/\t.*//; s/^/$command /"
    done
}

@test "every command takes the whole common block" {
    [ "$(each_command | wc -l)" -gt 60 ]
    while read -r -a words; do
        "${words[@]}" --dump-options | cut -f4 | sort >have
        for name in help version output force threads quiet verbose json format report progress \
            color seed device completion dump-options; do
            [ $name != progress ] || name='[no-]progress'
            grep -qxF -- "--$name" have || { echo "${words[*]}: no --$name"; false; }
        done
        [ -z "${words[1]:-}" ] || [ -z "$(uniq -d have)" ]
    done < <(each_command)
    # A device that is not there is not passed over by who would not compute on it.
    export TENSORUTILS_PLUGINS=$PWD
    for command in 'tns-ls x.tns' 'tns-cat x.tns -o y.tns' 'shard-ckpt verify x.tns' \
        'pipe-sched gen -s gpipe -p 2 -m 2'; do
        # shellcheck disable=SC2086 # words
        run -4 $command --device cuda
        # shellcheck disable=SC2086
        run -0 $command --seed 3 -j 1 -f --report r.json
        grep -q '"schema":"tensorutils\.' r.json
    done
    [ ! -e y.tns ] || tns-check y.tns
    # Standard output has one content.
    run -2 pipe-sched gen -s gpipe -p 2 -m 2 --json
    assert_line --index 0 --partial 'standard output carries the data; use --report FILE'
}

# bar ARGS...: does it show one on standard error?
bar() {
    "$@" --progress=always 2>&1 >/dev/null | grep -q $'\r.*[%s/]' || { echo "none: $*"; return 1; }
    "$@" --progress=never 2>&1 >/dev/null | grep -q $'\r' && { echo "one: $*"; return 1; }
    return 0
}

@test "--progress=always shows a bar wherever the option is" {
    local llama=$ROOT/tests/data/hf/llama
    tns-gen a:shape=1000x500 b:shape=1000x500 -o a.tns
    tns-export a.tns -o a.safetensors
    bar tns-check a.tns
    bar tns-ls a.tns
    bar tns-ls --stats a.tns
    bar tns-cat a.tns
    bar tns-diff a.tns a.safetensors
    bar tns-import a.safetensors
    bar tns-export a.tns -o b.safetensors
    bar tns-gen a:shape=100x100
    for sub in ls verify digest inspect 'inspect --why' cat load-order "diff $llama"; do
        # shellcheck disable=SC2086 # words
        bar shard-ckpt $sub "$llama"
    done
    bar shard-ckpt plan --to hf "$llama" out
    bar shard-ckpt convert -f --to meta:tp=1 "$llama" out
    bar quantize -t q8_0 a.tns
    bar quantize measure -t q8_0 a.tns
    bar pipe-sched gen -s gpipe -p 2 -m 2
    bar pipe-sched compare -p 2 -m 4
    bar fa-run info
    bar allreduce-bench sim --topo levels:n=8,alpha=1us,bw=25G --coll broadcast
    # What is long is told on the way, with its share.
    tns-gen --dist constant big:shape=30000x4000 -o big.tns
    tns-check --progress=always big.tns 2>&1 >/dev/null | grep -q ' [0-9]*% [0-9.]* [KMG]iB/s'
    tns-ls --stats --progress=always big.tns 2>&1 >/dev/null | tr '\r' '\n' | grep -c '%' >n
    [ "$(cat n)" -ge 2 ]
}

@test "--list alone names the tables of every command" {
    local command
    for command in shard-ckpt quantize fa-run kv-pack pipe-sched allreduce-bench tns-gen tns-cat; do
        $command --list | cmp - <($command --list=tables)
    done
    shard-ckpt --list | grep -P '^subcommands\t'
    tns-gen --list | grep -P '^dists\t'
}

@test "keys of NAME:KEY=VALUE: listed, and named where one is wrong" {
    shard-ckpt --list=layouts | grep -P '^megatron\t.*; keys: tp, pp, vpp,'
    pipe-sched --list=schedules | grep -P '^interleaved-1f1b\t.*; keys: group'
    quantize --list=codecs | grep -P '^gptq4\t.*; keys: '
    run -2 shard-ckpt plan --to megatron:tpp=2 "$ROOT/tests/data/hf/llama_demo" out
    assert_output --partial "unknown key 'tpp' (its keys: tp, pp, vpp, "
    assert_output --partial "did you mean 'tp', 'pp' or 'vpp'?"
    run -2 quantize -t q8_0:group=2 x.tns
    assert_output --partial "unknown key 'group' (it has no keys)"
}

@test "operands that are missing are counted and named" {
    run -2 shard-ckpt diff a
    assert_line --index 0 'shard-ckpt: expected 2 operands, got 1: shard-ckpt diff [option ...] checkpoint-a checkpoint-b'
}

@test "a subject is named once" {
    head -c 300 x.tns >short.tns
    printf '\xff' | dd of=x.tns bs=1 seek=140 conv=notrunc status=none
    local f
    for f in short.tns x.tns; do
        run -3 quantize "$f" -o out.tns
        refute_line --regexp "$f:.*$f:"
        run -3 bash -c "fa-run <$f"
        refute_line --regexp 'standard input:.*standard input:'
        run -3 bash -c "quantize <$f"
        refute_line --regexp '(standard input|-):.*standard input:'
    done
    run -3 bash -c 'echo "{}" | pipe-sched draw'
    assert_output --partial 'pipe-sched: standard input: schedule'
}

# complete WORD...: what bash offers for the last word.
complete_words() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    compopt() { :; }
    # shellcheck disable=SC1090
    source "$ROOT/completions/bash/$1"
    "_${1//-/_}" "$1" "${*: -1}" "${*: -2:1}"
    printf '%s\n' "${COMPREPLY[@]}"
}

@test "bash completes values from the tables, and subcommands alone where one must come first" {
    touch gen-file z-file
    assert_equal "$(complete_words pipe-sched g)" gen
    complete_words pipe-sched gen --schedule z | grep -x zb-h1
    complete_words pipe-sched gen --schedule = z | grep -x zb-h1
    assert_equal "$(complete_words pipe-sched plan --gpu h | xargs)" 'h100 h200'
    assert_equal "$(complete_words pipe-sched plan --emit m)" megatron
    complete_words quantize -t q4 | grep -x q4_k_m
    complete_words pipe-sched compare z | grep -x zb-h1
    run complete_words pipe-sched compare z
    refute_line z-file
    complete_words pipe-sched draw z | grep -x z-file
    complete_words allreduce-bench run --algo r | grep -x ring
    complete_words quantize g | grep -x gen-file
    assert_equal "$(complete_words shard-ckpt convert --to megatron :)" ''
    assert_equal "$(complete_words shard-ckpt convert --to megatron : g)" ''
    assert_equal "$(complete_words tns-cat -d b | xargs)" 'bool bf16'
    assert_equal "$(complete_words tns-gen --dtype = b | xargs)" 'bool bf16'
}

@test "fish completes values from the tables" {
    command -v fish >/dev/null || skip 'no fish'
    offer() { fish --no-config -c "source $ROOT/completions/fish/${1%% *}.fish; complete -C '$1'" | cut -f1; }
    offer 'pipe-sched gen --schedule z' | grep -x zb-h1
    assert_equal "$(offer 'pipe-sched plan --gpu h' | xargs)" 'h100 h200'
    offer 'quantize -t q4' | grep -x q4_k_m
    offer 'pipe-sched compare z' | grep -x zb-h1
    assert_equal "$(offer 'pipe-sched g')" gen
    offer 'allreduce-bench run --algo r' | grep -x ring
}

@test "a stream does not go into a file whose name says another format" {
    tns-gen a --shape 4 -o a.tns
    for name in m.gguf m.safetensors a.npy a.npz m.pt m.pth; do
        run -2 tns-cat a.tns -o "$name"
        assert_output --partial "use \"tns-cat ... | tns-export -o $name\""
        [ ! -e "$name" ]
    done
    run -2 kv-pack decompress a.tns -o c.safetensors
    assert_output --partial 'use "kv-pack decompress ... | tns-export -o c.safetensors"'
    run -2 shard-ckpt cat --to gguf "$ROOT/tests/data" -o m.gguf
    assert_output --partial 'use "shard-ckpt cat ... | tns-export -o m.gguf"'
    run kv-pack unpack --to hf:as=torch a.tns -o back.pt
    refute_output --partial tns-export
    tns-cat a.tns -o a.bin
    tns-export a.tns -o a.safetensors
    quantize decode a.tns -o b.safetensors
    run -3 tns-export a.tns -o a.gguf
    assert_output --partial 'shard-ckpt cat --to gguf DIR | quantize ...'
}
