#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The pipelines of README.md run as printed.
load helper

@test "the first screen of the README runs as printed" {
    ln -s "$ROOT/tests" tests
    awk '/^```sh/ { inside++ } inside == 1 && !/^```/ { print } /^```$/ && inside { exit }' "$ROOT/README.md" >script
    [ "$(wc -l <script)" -gt 20 ]
    # The tests have built it, and have it in PATH.
    # shellcheck disable=SC2016
    assert_equal "$(head -1 script)" 'make -j4 && export PATH=$PWD/build/bin:$PATH'
    sed -i 1d script
    run -0 bash -eu -o pipefail script
    assert_output --partial 'equal: 39 tensors'
    assert_line --regexp '^within tolerance: 1 tensor, worst off by 0\.0[0-9]+ in .w.$'
    [ -s out/1f1b.svg ]
    [ -s out/layer1.npz ]
    tns-ls out/demo.gguf | grep -q 'q5_0 .*token_embd.weight'
    grep -q '"worst_output_rel":0\.0' out/loss.json
}
