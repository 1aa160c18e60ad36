#!/usr/bin/env python3
"""examples/transformer as one runs it: it learns; ranks, transports, threads, buckets and small
batches change nothing but the order of adding; killed and started again, it reaches the same bits;
tokens and weights of other programs are read; wrong input is one clear line."""

import os
import shutil
import struct
import subprocess
import sys
from xml.etree import ElementTree

import trainer_runs as runs

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = os.path.join(HERE, "..", "..", "LICENSE")
# Plain loops: the same on every machine.
MODEL = ("--data", TEXT, "--layers", 2, "--heads", 2, "--channels", 32, "--context", 32, "--plain",
         "--cores", 1, "--sample", 0)
SHORT = (*MODEL, "--steps", 12, "--batch", 8, "--warmup", 4, "--check-every", 6)


def learns(folder):
    said = runs.run("transformer", *MODEL[:-2], "--steps", 200, "--sample", 40, "--rate", "3e-3",
                    "--plot", folder + "/loss.svg", "--log", folder + "/log", "--prompt", "The ",
                    ranks=2)
    assert "a sample:\n[0] The " in said, said
    losses = [float(row[1]) for row in runs.log(folder + "/log")]
    assert 5.3 < losses[0] < 5.8 and sum(losses[-5:]) / 5 < 2.6, (losses[0], losses[-5:])
    with open(folder + "/loss.svg", encoding="ascii") as picture:
        assert picture.read().rstrip().endswith("</svg>")


def how_it_is_run_changes_rounding_only(folder):
    logs = {}
    for name, flags, how in (
            ("1", (), {}), ("2", (), {"ranks": 2}), ("4", (), {"ranks": 4}),
            ("tcp", (), {"ranks": 2, "transport": "tcp"}), ("threads", ("--threads", 2), {}),
            ("small batches", ("--micro", 2), {"ranks": 2}),
            ("small buckets", ("--bucket", 0.02), {"ranks": 2}),
            ("activations made again", ("--recompute", "--late"), {"ranks": 2})):
        runs.run("transformer", *SHORT, *flags, "--log", folder + "/log", **how)
        logs[name] = runs.log(folder + "/log")
    for name in ("tcp", "threads", "small buckets", "activations made again"):
        assert logs["2"] == logs[name], name
    for name in ("2", "4", "small batches"):
        away = runs.furthest(logs["1"], logs[name])
        assert away < 1e-5, f"{name}: {away}"


def reproducible(folder):
    flags = (*MODEL, "--steps", 12, "--batch", 9, "--warmup", 4, "--check-every", 6)
    runs.reproducible("transformer", flags, folder, buckets=("--bucket", 0.02))


def bfloat16_and_hooks_stay_near(folder):
    runs.run("transformer", *SHORT, "--log", folder + "/log", ranks=2)
    plain = runs.log(folder + "/log")
    for flags, most in ((("--bf16",), 0.05), (("--hook", "bf16"), 0.02), (("--hook", "fp16"), 0.02)):
        runs.run("transformer", *SHORT, *flags, "--log", folder + "/log", ranks=2)
        away = runs.furthest(plain, runs.log(folder + "/log"))
        assert 0 < away < most, f"{flags}: {away}"


def sharded(folder):
    """Stages 1 to 3 are plain training, whatever is given up in between."""
    runs.run("transformer", *SHORT, "--log", folder + "/log", ranks=2)
    plain = runs.log(folder + "/log")
    logs = []
    for stage in (1, 2, 3):
        said = runs.run("transformer", *SHORT, "--zero", stage, "--micro", 2, "--sample", 5,
                        "--log", folder + "/log", ranks=2)
        assert f"ZeRO {stage}: at most " in said, said
        logs.append(runs.log(folder + "/log"))
        away = runs.furthest(plain, logs[-1])
        assert away < 1e-5, f"stage {stage}: {away}"
    assert logs[0] == logs[1]


def resumed_with_other_sharding(folder):
    """Saved by two ranks with stage 3, taken up by four with stage 1, and by one."""
    runs.run("transformer", *SHORT, "--log", folder + "/whole", ranks=2)
    whole = runs.log(folder + "/whole")
    saved = folder + "/saved"
    for flags, how, stop in ((("--zero", 3), {"ranks": 2}, 4), (("--zero", 1), {"ranks": 4}, 8),
                             ((), {}, 0)):
        runs.run("transformer", *SHORT, *flags, "--log", folder + "/log", "--checkpoints", saved,
                 "--save-every", 4, "--resume", **how)
        if stop:
            for step in range(stop + 4, 13, 4):
                shutil.rmtree(f"{saved}/step-{step:08}")
    away = runs.furthest(whole, runs.log(folder + "/log"))
    assert away < 1e-5, away


def killed_and_resumed(folder):
    saved = folder + "/saved"
    short = folder + "/short.txt"  # no step could be made of it
    with open(short, "w", encoding="ascii") as out:
        out.write("A text.\n")
    # After a step; in one, at the first gradient, in the midst of them, at the last.
    for flags, when in (((), 0), (("--bf16",), 28), (("--zero", 2), 1), (("--hook", "bf16"), 15)):
        runs.run("transformer", *SHORT, *flags, "--log", folder + "/whole", ranks=2)
        said = runs.run("transformer", *SHORT, *flags, "--log", folder + "/log", "--checkpoints",
                        saved, "--save-every", 4, "--resume", "--die-at", 10, "--die-in", when, ranks=2, restarts=1)
        assert "resumed after step 8, saved by 2 ranks" in said, said
        assert runs.log(folder + "/whole") == runs.log(folder + "/log")
        shutil.rmtree(saved + "/step-00000012")
        said = runs.run("transformer", *SHORT, *flags, "--log", folder + "/log", "--checkpoints",
                        saved, "--resume")
        assert "resumed after step 8, saved by 2 ranks" in said, said
        away = runs.furthest(runs.log(folder + "/whole"), runs.log(folder + "/log"))
        assert away < (1e-2 if flags[:1] in (("--bf16",), ("--hook",)) else 1e-5), away
        weights = saved + "/step-00000012/model.safetensors"
        runs.run("transformer", *MODEL, "--steps", 1, "--batch", 4, "--warmup", 0, "--init", weights)
        said = runs.run("transformer", *MODEL[:-1], 9, "--data", short, "--steps", 0, "--init", weights)
        assert "a sample:" in said, said
        said = runs.run("transformer", *SHORT, "--layers", 3, "--checkpoints", saved, "--resume",
                        *flags, status=1)
        assert 'it has no "h.2.' in said, said
        shutil.rmtree(saved)


def elastic(folder):
    """One knocks and is let in after the first step; one dies, and three go on. Every batch is whole,
    so the losses are those of an undisturbed run but for rounding."""
    flags = (*SHORT[:-6], "--steps", 12, "--batch", 12, "--warmup", 4, "--check-every", 6)
    runs.run("transformer", *flags, "--log", folder + "/whole")
    whole = runs.log(folder + "/whole")
    for more, when in (((), ()), (("--zero", 2, "--checkpoints", folder + "/saved", "--save-every", 2),
                                  ("--die-in", 9))):
        flags = (*flags, *more, "--elastic", folder, "--log", folder + "/log")
        newcomer = runs.knocking("transformer", *flags, folder=folder)
        first = runs.by_hand("transformer", *flags, "--die-at", 7, *when, ranks=3)
        said = runs.ends([*first, *newcomer], killed=(2,))
        assert "1 joined; going on with 4 ranks" in said[0], said[0]
        assert "1 of 4 ranks died; going on with 3" in said[0], said[0]
        away = runs.furthest(whole, runs.log(folder + "/log"))
        assert away < 1e-5, away


def elastic_saves_once(folder):
    """A newcomer is let in after a step that was just saved: by that checkpoint, not by another."""
    saved = folder + "/saved"
    flags = (*SHORT[:-6], "--steps", 3, "--batch", 12, "--warmup", 1, "--check-every", 0, "--zero", 1,
             "--checkpoints", saved, "--save-every", 1, "--keep", 1, "--elastic", folder)
    newcomer = runs.knocking("transformer", *flags, folder=folder)
    first = runs.by_hand("transformer", *flags, ranks=2, settings={"TUTTI_LOG": "info"})
    said = runs.ends([*first, *newcomer])
    assert "1 joined; going on with 3 ranks" in said[0], said[0]
    for step in (1, 2, 3):
        assert said[0].count(f"saved the checkpoint {saved}/step-{step:08}") == 1, said[0]
    assert os.listdir(saved) == ["step-00000003"], os.listdir(saved)


def elastic_under_tuttirun(folder):
    """Its job goes on without the rank that dies, with the losses of one that was never there."""
    flags = (*SHORT, "--batch", 12)
    runs.run("transformer", *flags, "--log", folder + "/whole")
    said = runs.run("transformer", *flags, "--elastic", folder, "--die-at", 5, "--log", folder + "/log",
                    ranks=3, elastic=True)
    assert "1 of 3 ranks died; going on with 2" in said and "2 of 3 go on" in said, said
    away = runs.furthest(runs.log(folder + "/whole"), runs.log(folder + "/log"))
    assert away < 1e-5, away


def elastic_without_rank_0(folder):
    """The lowest of those that are left takes over, and its log."""
    running = runs.by_hand("transformer", *MODEL, "--steps", 100000, "--batch", 8, "--elastic", folder,
                           "--log", folder + "/log", "--check-every", 0, "--print-every", 1, ranks=3)
    try:
        first = next(running[0].stdout)
        assert first.startswith("batches of 6 instead of 8, which 3 ranks cannot share"), first
        for line in running[0].stdout:
            if line.startswith("step    20"):
                break
        running[0].kill()
        said = []
        for line in running[1].stdout:
            said.append(line)
            if "step    30" in line:
                break
        text = "".join(said)
        assert "1 of 3 ranks died; going on with 2" in text and "step    30" in text, text
        assert "batches of" not in text and running[2].poll() is None, text
    finally:
        for process in running:
            process.kill()
            process.communicate()


def over_hosts(folder):
    """A tuttirun on each of two hosts (of this machine, told apart by name)."""
    runs.run("transformer", *SHORT, "--log", folder + "/one", ranks=2)
    port = str(runs.job.free_port())
    command = [runs.TUTTIRUN, "--nnodes", "2", "-n", "1", "--master-addr", "127.0.0.1",
               "--master-port", port, "--node-rank"]
    program = [os.path.join(runs.BIN, "transformer"), *map(str, SHORT), "--plot", "none", "--log",
               folder + "/hosts"]
    hosts = [subprocess.Popen([*command, str(k), *program], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT,
                              env=dict(runs.ENVIRONMENT, TUTTI_HOST_ID=f"host{k}"))
             for k in range(2)]
    said = [host.communicate(timeout=250)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], said
    away = runs.furthest(runs.log(folder + "/one"), runs.log(folder + "/hosts"))
    assert away < 1e-5, away


def a_trace_is_drawn(folder):
    runs.run("transformer", *SHORT, "--steps", 5, "--bucket", 0.02, "--trace", folder + "/trace",
             ranks=2)
    tool = os.path.join(HERE, "..", "..", "tools", "draw_trace")
    drawn = subprocess.run([sys.executable, "-B", tool, folder + "/trace.0.json"], check=True,
                           stdout=subprocess.PIPE, text=True).stdout
    texts = [node.text for node in ElementTree.fromstring(drawn).iter() if node.text]
    assert any("all-reduce" in text for text in texts), texts
    assert any("forward" in text for text in texts), texts
    past = subprocess.run([sys.executable, "-B", tool, folder + "/trace.0.json", "99"], text=True,
                          stderr=subprocess.PIPE, check=False)
    assert past.returncode != 0 and "there is none number 99" in past.stderr, past.stderr


def token_shards(folder):
    tokens = [(i * i) % 50257 for i in range(4000)]
    for name, said, count in (("a.bin", 4000, 4000), ("b.bin", 4000, 4000), ("torn.bin", 4000, 3999),
                              ("0.bin", 0, 0), ("1.bin", 0, 0)):
        with open(f"{folder}/{name}", "wb") as out:
            out.write(struct.pack("<256i", 20240520, 1, said, *([0] * 253)))
            out.write(struct.pack(f"<{count}H", *tokens[:count]))
    said = runs.run("transformer", *MODEL, "--data", f"{folder}/[0-1].bin,{folder}/a.bin,{folder}/[b-c].bin", "--steps", 1,
                    "--batch", 2, "--channels", 8, "--sample", 3)
    assert "8000 tokens of 50257" in said and "a sample:\n50256 " in said, said
    said = runs.run("transformer", *MODEL, "--data", folder + "/torn.bin", status=1)
    assert "or a torn one" in said, said


def on_a_simulated_gpu(folder):
    """With everything in the memory of a GPU: as on the CPU, for any number of ranks and any sharding;
    what one of them saves the other takes up."""
    small = (*MODEL, "--layers", 1, "--heads", 1, "--channels", 16, "--context", 16, "--steps", 4,
             "--batch", 4, "--warmup", 1, "--check-every", 2)
    logs = {}
    for name, flags, ranks in (
            ("cpu", (), 0), ("gpu", ("--device", "sim", "--sample", 3), 0),
            ("sharded", ("--device", "sim", "--zero", 3, "--micro", 1, "--recompute", "--attention", "products"), 2),
            ("cpu bf16", ("--bf16", "--hook", "bf16"), 0),
            ("gpu bf16", ("--bf16", "--hook", "bf16", "--device", "sim", "--zero", 1), 2)):
        said = runs.run("transformer", *small, *flags, "--log", folder + "/log", ranks=ranks)
        assert ("simulated device, plain products" in said) == ("--device" in flags), said
        logs[name] = runs.log(folder + "/log")
    for name, like, most in (("gpu", "cpu", 1e-5), ("sharded", "cpu", 1e-5), ("gpu bf16", "cpu bf16", 0.01),
                             ("gpu bf16", "cpu", 0.02)):
        away = runs.furthest(logs[like], logs[name])
        assert away < most, f"{name}: {away}"
    for first, then in (((), ("--device", "sim")), (("--device", "sim"), ())):
        saved = folder + "/saved" + "".join(first)
        keep = ("--checkpoints", saved, "--resume", "--save-every", 2, "--log", folder + "/log")
        runs.run("transformer", *small, "--bf16", *first, *keep, "--die-at", 2, status=None)
        said = runs.run("transformer", *small, "--bf16", *then, *keep)
        assert "resumed after step 2" in said, said
        away = runs.furthest(logs["cpu bf16"][2:], runs.log(folder + "/log")[-2:])
        assert away < 0.01, f"{first} then {then}: {away}"


def wrong_input(folder):
    with open(folder + "/bad.safetensors", "wb") as out:
        out.write(b"no tensors")
    for flags, text in ((("--data", folder + "/none"), "cannot open"),
                        (("--size", "huge"), "--size huge: expected tiny"),
                        (("--schedule", "square"), "expected constant, linear, cosine or wsd"),
                        (("--steps", 9, "--warmup", 20), "--warmup 20 and --decay 0 are more than"),
                        (("--hook", "fp4"), "expected none, fp16"),
                        (("--batch", 100000), "--batch \"100000\": expected a whole number"),
                        (("--context", 60000), "are too few"),
                        (("--join",), "needs --elastic FOLDER"),
                        (("--device", "tpu"), "expected cpu, cuda or sim"),
                        (("--attention", "slow"), "expected flash or products"),
                        (("--device", "sim", "--heads", 4), "they have 4, 16, 32 or 64"),
                        (("--device", "sim", "--hook", "powersgd"), "works on host memory only"),
                        (("--elastic", folder, "--zero", 1), "give --checkpoints FOLDER"),
                        (("--heads", 5), "cannot be shared among 5 heads"),
                        (("--init", folder + "/bad.safetensors"), "no safetensors file")):
        said = runs.run("transformer", *MODEL, *flags, status=None)
        assert text in said and said.count("\n") == 1, said


runs.main([learns, how_it_is_run_changes_rounding_only, reproducible,
           bfloat16_and_hooks_stay_near, sharded, resumed_with_other_sharding, killed_and_resumed, elastic, elastic_saves_once, elastic_under_tuttirun, elastic_without_rank_0, over_hosts,
           a_trace_is_drawn, token_shards, on_a_simulated_gpu, wrong_input],
          few=[resumed_with_other_sharding, elastic, token_shards])
