#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The pipelines of README.md run as printed.
load helper

@test "the first screen of the README runs as printed" {
    ln -s "$ROOT/tests" tests
    awk '/^```sh/ { inside++ } inside == 1 && !/^```/ { print } /^```$/ && inside { exit }' "$ROOT/README.md" >script
    [ "$(wc -l <script)" -gt 20 ]
    run -0 bash -eu -o pipefail script
    assert_output --partial 'equal: 39 tensors'
    [ -s out/1f1b.svg ]
    [ -s out/layer1.npz ]
}
