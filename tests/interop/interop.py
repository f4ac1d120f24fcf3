"""What every check script uses: our commands, a scratch folder, the list of checks."""
import os
import subprocess
import sys
import tempfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(os.path.dirname(HERE), "data")
BINDIR = os.environ.get("BINDIR", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "bin"))
sys.path.insert(0, os.path.join(DATA, "make"))
from common import TORCH, shape_text, torch_row, torch_walk  # noqa: E402,F401

checks = []
scratch = tempfile.TemporaryDirectory(prefix="interop.")


class Skip(Exception):
    """A check that cannot run here, and why."""


def check(name, *args):
    """Adds the function to the list, once per set of arguments."""
    def add(function):
        checks.append((name, function, args))
        return function
    return add


def temp(name):
    """A fresh path in the scratch folder (made anew for each check)."""
    return os.path.join(scratch.name, name)


def data(name):
    return os.path.join(DATA, name)


def command(name, *args, stdin=None, stdout=None):
    """Runs one of our commands; its failure is the check's."""
    path = os.path.join(BINDIR, name)
    if not os.path.exists(path):
        raise Skip("no command '%s'" % name)
    done = subprocess.run([path, *args], stdin=stdin, stdout=stdout or subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise AssertionError("%s %s: status %d: %s" % (name, " ".join(args), done.returncode,
                                                       done.stderr.decode(errors="replace").strip()[-500:]))
    return done.stdout


def stream(source):
    """A tensor stream of any importable file."""
    out = temp("in.tns")
    with open(out, "wb") as f:
        command("tns-import", source, stdout=f)
    return out


def oracle(name):
    """{tensor: (crc, dtype, shape)} of a fixture's oracle."""
    rows = {}
    with open(data(name + ".oracle"), encoding="utf-8", newline="\n") as f:
        for line in f.read().split("\n")[:-1]:
            crc, dtype, shape, tensor = line.split(" ", 3)
            rows[tensor] = (crc, dtype, shape)
    return rows


def digest_rows(text):
    """The same of `shard-ckpt digest` (which has a SHA256 or - in between)."""
    rows = {}
    for line in text.decode().split("\n")[:-1]:
        crc, _, dtype, shape, tensor = line.split(" ", 4)
        rows[tensor] = (crc, dtype, shape)
    return rows


def row(dtype, shape, raw):
    return "%08x" % (zlib.crc32(raw) & 0xFFFFFFFF), dtype, shape_text(shape)


def torch_rows(tensors):
    return {k: row(*torch_row(t)) for k, t in torch_walk(tensors).items()}


def same(got, want):
    """Equal oracles, or an error that names the first difference."""
    for name in sorted(set(got) | set(want)):
        if name not in got:
            raise AssertionError("no tensor '%s'" % name)
        if name not in want:
            raise AssertionError("unexpected tensor '%s'" % name)
        if got[name] != want[name]:
            raise AssertionError("tensor '%s': %s, expected %s" % (name, " ".join(got[name]), " ".join(want[name])))


def main():
    """Runs the checks; one line each.  The status is the worst of them."""
    global scratch
    failed = False
    for name, function, args in checks:
        scratch.cleanup()
        scratch = tempfile.TemporaryDirectory(prefix="interop.")
        try:
            function(*args)
            print("ok " + name, flush=True)
        except Skip as why:
            print("skip %s: %s" % (name, why), flush=True)
        except Exception as why:
            failed = True
            print("not ok %s: %s" % (name, " ".join(("%s: %s" % (type(why).__name__, why)).split())[-600:]), flush=True)
    scratch.cleanup()
    return failed
