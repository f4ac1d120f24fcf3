#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# pipe-sched: what is wrong in a file is status 3 and named with its line; what an option asks for
# and does not get is status 2; nothing that was given is passed over in silence.
load helper

@test "lines of --times that are none" {
    pipe-sched gen -s 1f1b -p 2 -m 2 -o s.json
    for line in F,0,-1 F,0,nan F,a,1 F,0,1e400 F,0,12345678901234567890 F,0 Q,0,1 link,0,0,1 \
        F,0,1,2 link,0,1,2,3 mb,0,x 'F,0,'; do
        printf 'I,0,1\n%s\n' "$line" >t
        run -3 pipe-sched sim --times t s.json
        assert_output --partial 't: times: line 2: '
        refute_output --partial 'Try'
    done
    # Good lines, but of another schedule: a request that cannot be met.
    for line in F,9,1 mb,99,1; do
        run -2 pipe-sched sim --times - s.json <<<$line
        assert_output --partial 'the schedule has 2'
    done
}

@test "cluster files" {
    for line in gpus=a gpu-memory=80XB x=1 gpus=0 efficiency=0 gpus; do
        printf '# a cluster\n%s\n' "$line" >c
        run -3 pipe-sched plan --layers 24 --hidden 2304 --heads 24 --batch 512 --cluster c
        assert_output --partial 'c: line 2: '
    done
}

@test "lines of place, none of them, and twice the same" {
    bad() { # METHOD OPTIONS LINES WHY
        printf %b "$3" >lines
        # shellcheck disable=SC2086 # words
        run -3 pipe-sched place --method $1 $2 lines
        assert_output --partial 'lines: '
        assert_output --partial "$4"
    }
    bad uneven '--batch 8' 'a,1,80XB\n' 'line 1'
    bad uneven '--batch 8' '' 'no device'
    bad uneven '--batch 8' 'a,1,80GB\nb,1,80GB\na,2,80GB\n' "'a' is there twice"
    bad nics '--dp 1 --layers 4' '' 'no device'
    bad nics '--dp 1 --layers 4' 'a,x,1\na,y,1\n' "'a' is there twice"
    bad swarm '' '' 'no peer'
    bad swarm '' '0,1,5,4\n' 'fails before it joins'
    bad tasklets '--dp 1 --pp 2 --dp-bytes 1 --pp-bytes 1' '0,1,0,1e9\n1,0,0,2e9\n' 'a second link'
    printf '0,1,0.5,1e9\n' >lines
    run -0 --separate-stderr pipe-sched place --dp 1 --pp 2 lines
    assert_regex "$stderr" 'without --dp-bytes and --pp-bytes only latencies count'
}

@test "plan: a 0 is not what nobody gave" {
    args='--layers 24 --hidden 2304 --heads 24 --batch 512'
    for more in '--gpus 0' '--gpus 32 --efficiency 0' '--gpus 32 --per-node 0' '--gpus 32 --gpu-memory 0' \
        '--gpus 32 --max-tp 0' '--gpus 32 --link 0' '--gpus 32 --network 0GB/s' '--gpus 32 --kv-heads 0' \
        '--gpus 32 --efficiency inf'; do
        # shellcheck disable=SC2086 # words
        run -2 pipe-sched plan $args $more
        option=${more% *}
        assert_output --partial "${option##* }: '"
        assert_output --partial 'more than 0 is expected'
    done
    cat >config.json <<'END'
{"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 100, "num_local_experts": 8,
 "num_experts_per_tok": 99}
END
    run -3 pipe-sched plan --config config.json --gpus 8 --batch 64
    assert_output --partial '99 experts for a token, of 8'
}

@test "documents: keys and values that mean nothing here" {
    pipe-sched gen -s 1f1b -p 2 -m 2 -o s.json
    bad() { # FROM TO WHY
        sed "s|$1|$2|" s.json >bad.json
        ! cmp -s s.json bad.json
        run -3 pipe-sched sim bad.json
        assert_output --partial "$3"
    }
    bad '"place":\[0,1\]' '"place":[0.5,1]' 'place[0]'
    bad '"name":"1f1b"' '"name":7' 'name'
    bad '"name":"1f1b"' '"name":"a\\u0001\\u001b[31mx"' 'name'
    bad '"cost":{' '"cost":{"unit":"zz",' 'unit'
    bad '"cost":{' '"cost":{"Z":1,' "'Z' is not a key"
    bad '"cost":{' '"cost":{"mb":1,' "'mb' is not a key"
    bad '"cost":{' '"cost":{"stage_time":{"Z":[1,1]},' "'Z' is not a key"
    bad '"cost":{' '"cost":{"weight":[-1,1],' 'negative'
    # Seven ticks to the unit, F of one of them: I and W are units, as they are without a cost.
    sed 's|"cost":{[^}]*}|"cost":{"scale":7,"F":1}|' s.json | { run -0 pipe-sched sim; assert_line --partial 'ideal 4.285714286'; }
}

@test "sizes that the file does not have" {
    pipe-sched gen -s 1f1b -p 2 -m 2 -o s.json
    pipe-sched convert --to csv s.json >s.csv
    for args in '--stages 3 s.json' '-p 3 s.csv' '-m 5 s.json' '--pipelines 2 s.json' '-p 1 s.json'; do
        # shellcheck disable=SC2086 # words
        run -2 pipe-sched sim $args
        assert_output --partial 'the schedule has'
    done
    pipe-sched sim -p 2 -m 2 --stages 2 --pipelines 1 s.json
}

@test "a measured step of another schedule, or without times" {
    pipe-sched gen -s 1f1b -p 2 -m 2 -o s.json
    for name in 9F0 0F99; do
        echo '[{"ph":"X","name":"'$name'","ts":0,"dur":5}]' >t.json
        run -2 pipe-sched draw --over t.json s.json
        assert_output --partial "t.json: $name: the schedule has 2 stages"
    done
    for event in '"ts":"a","dur":5' '"dur":5' '"ts":0'; do
        echo '[{"ph":"X","name":"0F0",'"$event"'}]' >t.json
        run -3 pipe-sched draw --over t.json s.json
        assert_output --partial 'its time is none'
    done
}

@test "a solution of another program" {
    for ((s = 0; s < 3; s++)); do
        for ((i = 0; i < 2; i++)); do
            for k in F I W; do echo "1 e_${k}_${s}_$i $((s + 10 * i)) 0"; done
        done
    done >sol
    run -3 pipe-sched optimize -p 2 -m 2 --read-sol sol
    assert_output --partial 'e_F_2_0 is of another program: this one has 2 stages'
}

@test "messages name the option and the schedule that they speak of" {
    run -2 pipe-sched gen -s hanayo -p 4 -m 4 -c 3
    assert_output --partial 'hanayo: -c 3'
    run -2 pipe-sched gen -s update-ssd -p 3 -m 4
    assert_output --partial 'update-ssd: the 4 ranks are resources'
}
