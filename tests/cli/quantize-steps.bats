# SPDX-License-Identifier: Apache-2.0
# quantize with what the step before has left: error feedback, changes of activations, and the codecs
# of gradients that go with them.
# shellcheck disable=SC2154 # stderr is set by run
load helper

# A row of floats as a .npy file.
row() { python3 -c '
import struct, sys
v = [float(x) for x in sys.argv[1:]]
h = ("{%r: %r, %r: False, %r: (1, %d), }" % ("descr", "<f4", "fortran_order", "shape", len(v))).encode()
h += b" " * (117 - len(h)) + b"\n"
sys.stdout.buffer.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(h)) + h + struct.pack("<%df" % len(v), *v))' "$@"; }

# The numbers of record $2 of a stream.
numbers() {
    tns-cat -s "$2" "$1" | tns-export --to npz -o numbers.npz
    python3 -c '
import struct, zipfile
z = zipfile.ZipFile("numbers.npz")
b = z.read(z.namelist()[0])
b = b[10 + struct.unpack_from("<H", b, 8)[0]:]
print(*("%.7g" % v for v in struct.unpack("<%df" % (len(b) // 4), b)))'
}

@test "feedback: what a step loses is added to the next" {
    needs_python
    row 1 -.5 .25 0 >a.npy
    row .5 .5 -.25 1 >b.npy
    quantize -r .=sign --method feedback --state e a.npy >m
    numbers e a.error | diff - <(echo 0.5625 -0.0625 -0.1875 -0.4375)
    tns-cat --rename 'b=a' b.npy | quantize -r .=sign --method feedback --state e >m
    numbers e a.error | diff - <(echo 0.4375 -0.1875 0.1875 -0.0625)
    # A decay, and a rate: half of that error and twice the numbers.
    quantize -r .=topk:k=1 --method feedback:decay=.5,rate=2 --state e a.npy >m
    numbers e a.error | diff - <(echo 0 -1.09375 0.59375 -0.03125)
}

@test "changes: both sides hold the same; a step alone means nothing" {
    needs_python
    row 1 -2 .5 0 >0.npy
    row 1.1 -1.9 .45 .2 >1.npy
    for i in 0 1; do
        tns-cat --rename "$i=a" $i.npy |
            quantize -r .=int4:group=4,rule=narrow --method change --state sender >$i.tns
        tns-check $i.tns
        quantize decode --state receiver $i.tns >x$i
        tns-diff sender receiver
    done
    numbers x0 a | diff - <(echo 1 -2 0.5 0)
    numbers x1 a | diff - <(echo 1.114286 -1.885714 0.4428571 0.2)
    run -2 bash -c "quantize decode 1.tns >x"
    assert_output --partial "'a': a change since the step before: give --state"
    run -3 bash -c "quantize decode --state new 1.tns >x"
    assert_output --partial "knows no step before it"
    run ! test -e new
}

@test "the state: kept for what a step does not meet, and only replaced when a step is done" {
    tns-gen a b --shape 8,64 >ab.tns
    quantize -t int4:group=32 --method feedback --state e ab.tns >m
    tns-cat -s a ab.tns | quantize -t int4:group=32 --method feedback --state e >m
    tns-ls e | awk 'NR > 1 { print $NF }' | diff - <(printf '%s\n' a.error b.error)
    cp e before
    run -4 bash -c "quantize -t int4:group=32 --method feedback --state e ab.tns >/dev/full"
    cmp before e
    run -2 bash -c "tns-gen a --shape 4,64 | quantize -t int4:group=32 --method feedback --state e >x"
    assert_output --partial "'a.error' is of another tensor"
    run -2 bash -c "quantize --state e ab.tns >x"
    run -2 bash -c "quantize --method change ab.tns >x"
    run -2 quantize measure --method feedback ab.tns
}

@test "PowerSGD goes on from its factor and comes closer; DeMo's waves" {
    # Rank 4 exactly, after two steps of the power method.
    tns-gen w:dist=arange --shape 16,32 >w.tns
    for i in 1 2; do
        rm -f e.error
        quantize -t powersgd:rank=2 --method feedback --state e w.tns | quantize decode >x$i
    done
    tns-ls e | awk 'NR > 1 { print $2, $NF }' | diff - <(printf '%s\n' '16x32 w.error' '32x2 w.q')
    tns-diff --rtol 1e-4 --atol 1e-3 w.tns x1
    quantize -t demo:top=512 w.tns | quantize decode | tns-diff --atol 1e-3 w.tns -
    run -2 quantize -r .=powersgd:rank=17 w.tns
    run -2 quantize -r .=demo:top=0 w.tns
}
