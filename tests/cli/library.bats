# SPDX-License-Identifier: Apache-2.0
# The library as its users have it: the example compiles against the headers and the shared object.
load helper

@test "examples/library/ls.c: any format, standard input, errors" {
    sanitized && skip 'a sanitizer wants its own flags'
    "${CC:-cc}" -Wall -Wextra -Werror -I"$ROOT/lib" "$ROOT/examples/library/ls.c" -o ls \
        -L"$BUILD/lib" -ltensorutils -Wl,-rpath,"$BUILD/lib"
    tns-gen a:dist=arange b:dtype=bf16 --shape 2,3 -o x.tns
    tns-export x.tns -o x.safetensors
    run -0 ./ls x.safetensors
    assert_output $'f32\t2x3\ta\nbf16\t2x3\tb'
    run -0 bash -c 'cat x.tns | ./ls'
    assert_output $'f32\t2x3\ta\nbf16\t2x3\tb'
    head -c 300 x.tns >short.tns
    run -3 ./ls short.tns
    assert_output --partial 'ls: short.tns'
    run -4 ./ls ./absent
}

@test "the program in tensorutils.3 is the example" {
    awk '/^\.Bd -literal/ { inside = 1; next } /^\.Ed/ { inside = 0 } inside' "$ROOT/man/tensorutils.3" |
        sed 's/\\-/-/g; s/\\e/\\/g' | diff - <(sed -n '/^#include <stdio/,$p' "$ROOT/examples/library/ls.c")
    for header in "$ROOT"/lib/tensorutils/*.h; do
        grep -qF ".It In tensorutils/${header##*/}" "$ROOT/man/tensorutils.3"
    done
}
