"""llama.cpp goes on from session files that we read and wrote as it does from its own.

LLAMA_COMPLETION names llama.cpp's llama-completion; LLAMA_MODELS has MODEL.gguf[=SPEC] separated by
spaces, SPEC what kv-pack needs for it (heads=2,pattern=4). Without them the checks are skipped."""
import os
import subprocess
import tempfile

program, models = os.environ.get("LLAMA_COMPLETION"), os.environ.get("LLAMA_MODELS", "").split()
kv_pack = os.path.join(os.environ["BINDIR"], "kv-pack")


def complete(model, session, n):
    """The text, and what is said of the session."""
    done = subprocess.run(
        [program, "-m", model, "-p", "the cache of a prompt that is a little longer than the window",
         "-n", str(n), "--temp", "0", "--ignore-eos", "--special", "--prompt-cache", session,
         "--prompt-cache-ro" if os.path.exists(session) else "--no-warmup", "-no-cnv", "-t", "1",
         "-c", "256"], capture_output=True, check=True)
    return done.stdout, done.stderr


def whole(model, session):
    """What llama.cpp says; at its exit the end is lost now and then, of the text and of what is said of
    the session: the longest of some runs, of which the others must be beginnings."""
    runs = [complete(model, session, 24) for _ in range(5)]
    text = max((out for out, _ in runs), key=len)
    assert all(text.startswith(out) for out, _ in runs), [out for out, _ in runs]
    return text, any(b"loaded a session" in said for _, said in runs)


def check(model, spec, work):
    own, ours = os.path.join(work, "own"), os.path.join(work, "ours")
    complete(model, own, 1)
    stream = subprocess.run([kv_pack, "pack", "--from", f"llama:{spec}" if spec else "llama", own],
                            capture_output=True, check=True).stdout
    back = ",".join(["session"] + [s for s in spec.split(",") if s.startswith("pattern")])
    subprocess.run([kv_pack, "unpack", "--to", f"llama:{back}", "-o", ours], input=stream, check=True)
    want, _ = whole(model, own)
    got, loaded = whole(model, ours)
    return want == got and len(got) > 24 and loaded


if not program or not models:
    print("skip llama: LLAMA_COMPLETION and LLAMA_MODELS are not set")
for entry in models if program else []:
    path, _, arguments = entry.partition("=")
    with tempfile.TemporaryDirectory() as folder:
        good = check(path, arguments, folder)
    print(f"{'ok' if good else 'not ok'} llama: {os.path.basename(path)} goes on from our session")
