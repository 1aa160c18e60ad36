#!/usr/bin/env python3
"""examples/mlp as one runs it: it learns; ranks, transports and threads change nothing but the order
of adding; killed and started again, it reaches the same bits; wrong input is one clear line."""

import os
import shutil
import subprocess

import trainer_runs as runs

SHORT = ("--epochs", 6, "--plain")  # plain loops: the same on every machine
HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "..", "examples", "mlp")


def learns(folder):
    said = runs.run("mlp", "--expect", 0.97, "--plot", folder + "/loss.svg", "--log",
                    folder + "/log")
    assert "accuracy on 300 images that were not trained on: 9" in said, said
    with open(folder + "/loss.svg", encoding="ascii") as picture:
        assert picture.read().rstrip().endswith("</svg>")
    losses = [float(row[1]) for row in runs.log(folder + "/log")]
    assert len(losses) == 690 and sum(losses[-23:]) < 0.05 * sum(losses[:23])
    runs.run("mlp", "--epochs", 1, "--expect", 1, status=1)


def ranks_change_rounding_only(folder):
    logs = {}
    for name, how in (("1", {}), ("2 shm", {"ranks": 2}), ("4 shm", {"ranks": 4}),
                      ("2 tcp", {"ranks": 2, "transport": "tcp"})):
        runs.run("mlp", *SHORT, "--log", folder + "/log", **how)
        logs[name] = runs.log(folder + "/log")
    runs.run("mlp", *SHORT, "--threads", 2, "--log", folder + "/log")
    logs["2 threads"] = runs.log(folder + "/log")
    assert logs["2 shm"] == logs["2 tcp"] == logs["2 threads"]
    for name in ("2 shm", "4 shm"):
        away = runs.furthest(logs["1"], logs[name])
        assert away < 5e-6, f"{name}: {away}"


def reproducible(folder):
    runs.reproducible("mlp", ("--epochs", 2, "--batch", 66, "--plain"), folder)


def killed_and_resumed(folder):
    runs.run("mlp", *SHORT, "--log", folder + "/whole", ranks=2)
    said = runs.run("mlp", *SHORT, "--log", folder + "/log", "--checkpoints", folder + "/saved",
                    "--save-every", 30, "--resume", "--die-at", 70, ranks=2, restarts=1)
    assert "resumed after step 60, saved by 2 ranks" in said, said
    assert runs.log(folder + "/whole") == runs.log(folder + "/log")
    # At another world size: the same images, rounded otherwise.
    shutil.rmtree(folder + "/saved/step-00000138")
    said = runs.run("mlp", *SHORT, "--log", folder + "/log", "--checkpoints", folder + "/saved",
                    "--resume")
    assert "resumed after step 120, saved by 2 ranks" in said, said
    assert runs.furthest(runs.log(folder + "/whole"), runs.log(folder + "/log")) < 5e-6


def elastic(folder):
    """One knocks and is let in after the first step; one dies in a later one, and three go on: the
    losses of an undisturbed run but for rounding, since every batch is whole."""
    flags = (*SHORT, "--batch", 60)
    runs.run("mlp", *flags, "--log", folder + "/whole")
    flags = (*flags, "--elastic", folder, "--log", folder + "/log")
    newcomer = runs.knocking("mlp", *flags, folder=folder)
    first = runs.by_hand("mlp", *flags, "--die-at", 70, "--die-in", 3, ranks=3)
    said = runs.ends([*first, *newcomer], killed=(2,))
    assert "1 joined; going on with 4 ranks" in said[0], said[0]
    assert "1 of 4 ranks died; going on with 3" in said[0], said[0]
    assert runs.furthest(runs.log(folder + "/whole"), runs.log(folder + "/log")) < 5e-6


def died_at_the_door(folder):
    """Nobody waits for one who knocked and died; another who knocks comes in."""
    flags = (*SHORT, "--batch", 60, "--elastic", folder, "--log", folder + "/log")
    dead = runs.knocking("mlp", *flags, folder=folder)[0]
    dead.kill()
    dead.communicate()
    left = [name for name in os.listdir(folder) if name.startswith("knock-")]
    assert len(left) == 1, left
    newcomer = runs.by_hand("mlp", *flags, "--join", ranks=1)
    while len([name for name in os.listdir(folder) if name.startswith("knock-")]) < 2:
        assert newcomer[0].poll() is None, newcomer[0].communicate()
    said = runs.ends([*runs.by_hand("mlp", *flags, ranks=2), *newcomer])
    assert f"{left[0]}: who knocked there has died" in said[0], said[0]
    assert "1 joined; going on with 3 ranks" in said[0] and "as before" not in said[0], said[0]
    assert not [name for name in os.listdir(folder) if name.startswith("knock-")]


def too_late(folder):
    """Who knocks in the last step is not let in, and the run ends as ever."""
    flags = ("--epochs", 1, "--batch", 1496, "--plain", "--elastic", folder, "--checkpoints",
             folder + "/saved")
    newcomer = runs.knocking("mlp", *flags, folder=folder)
    try:
        said = runs.ends(runs.by_hand("mlp", *flags, ranks=2))
        assert "accuracy on 300" in said[0] and "joined" not in said[0], said[0]
        assert os.listdir(folder + "/saved") == ["step-00000001"]
        assert newcomer[0].poll() is None, newcomer[0].communicate()
    finally:
        newcomer[0].kill()
        newcomer[0].communicate()


def other_model(folder):
    runs.run("mlp", "--epochs", 1, "--checkpoints", folder)
    said = runs.run("mlp", "--hidden", 64, "--checkpoints", folder, "--resume", status=1)
    assert "is of another model: \"layer0.weight\" is float32 [64, 128] there, and float32 " \
        "[64, 64] here" in said, said


def disk_full(folder):
    """A file system of 64 KiB: the checkpoint does not fit, and that is said once, clearly."""
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-c",
             f'mount -t tmpfs -o size=64k tmpfs {folder} && exec "$@"', "sh"]
    if subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
        print("disk_full: skipped, no mounts are allowed here")
        return
    said = runs.run("mlp", "--epochs", 1, "--checkpoints", folder + "/saved", status=1,
                    prefix=mount)
    assert "model.safetensors: No space left on device" in said, said


def wrong_input(folder):
    for flags, text in ((("--data", folder), "digits-images-idx3-ubyte: No such file"),
                        (("--batch", "1e9"), "--batch \"1e9\": expected a whole number"),
                        (("--bath", "64"), "\"--bath\" is no flag"),
                        (("--join",), "--join needs --elastic"),
                        (("--checkpoints", "/proc/none/of/it"), "cannot make the folder /proc/none:"),
                        (("--resume",), "need --checkpoints")):
        said = runs.run("mlp", *flags, status=None)
        assert text in said and said.count("\n") == 1, said
    for name in os.listdir(DATA):
        if name.endswith("ubyte"):
            shutil.copy(os.path.join(DATA, name), folder)
    os.truncate(folder + "/digits-images-idx3-ubyte", 1000)
    assert "or a torn one" in runs.run("mlp", "--data", folder, status=1)
    # The same files under MNIST's names, for both of its parts.
    for part in ("train", "t10k"):
        shutil.copy(os.path.join(DATA, "digits-images-idx3-ubyte"),
                    f"{folder}/{part}-images-idx3-ubyte")
        shutil.copy(os.path.join(DATA, "digits-labels-idx1-ubyte"),
                    f"{folder}/{part}-labels-idx1-ubyte")
    said = runs.run("mlp", "--mnist", folder, "--epochs", 1)
    assert "1797 + 1797 images of 64 pixels" in said, said


runs.main([learns, ranks_change_rounding_only, reproducible, killed_and_resumed, elastic, died_at_the_door, too_late, other_model,
           disk_full, wrong_input], few=[killed_and_resumed, wrong_input])
