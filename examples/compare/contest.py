"""What the comparisons of this folder share: starting examples/transformer and torch_ddp.py as ranks
with the same data, weights and order of samples, reading their logs, holding their losses together."""

import os
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TORCH = os.path.join(HERE, "torch_ddp.py")
# Settings of an outer job or of the machine's owner would choose for one side only.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OPENBLAS_", "MKL_",
                                       "OMP_", "TUTTI_", "GLOO_"))}
WARM = 5  # steps of each run that do not count: first touch, compilation, buckets made anew


def text(folder):
    """A text that is always at hand: the library's own."""
    path = os.path.join(folder, "text")
    with open(path, "wb") as out:
        for room in ("include/tutti", "base", "plan", "device", "topology", "transport", "launch",
                     "coll", "ddp", "docs"):
            for base, folders, files in os.walk(os.path.join(ROOT, room)):
                folders.sort()
                for name in sorted(files):
                    if name.endswith((".h", ".c", ".md")):
                        with open(os.path.join(base, name), "rb") as file:
                            out.write(file.read())
    return path


class Contender:
    """A program, its flags, and what became of its runs: median ms of a step in each."""

    def __init__(self, name, torch, flags):
        self.name, self.torch, self.flags = name, torch, flags
        self.medians, self.losses, self.said = [], None, ""

    def command(self, build, python):
        if self.torch:
            return [python, TORCH, *self.flags]
        return [os.path.join(build, "bin/transformer"), "--schedule", "constant", "--warmup", "0",
                "--check-every", "0", "--sample", "0", "--plot", "none", *self.flags]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(command, ranks, port, prefixes=None, address="127.0.0.1", extra=None):
    """All ranks, rank r behind the words of prefixes[r]; rank 0's output, or an error."""
    running = []
    for rank in range(ranks):
        environment = dict(ENVIRONMENT, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR=address,
                           MASTER_PORT=str(port), LOCAL_RANK="0" if prefixes else str(rank),
                           LOCAL_WORLD_SIZE="1" if prefixes else str(ranks), OMP_NUM_THREADS="1",
                           **(extra or {}))
        if prefixes:  # as on hosts of their own
            environment.update(GROUP_RANK=str(rank), GROUP_WORLD_SIZE=str(ranks))
        running.append(subprocess.Popen([*(prefixes[rank] if prefixes else ()), *command],
                                        env=environment, text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT))
    said = [process.communicate(timeout=600)[0] for process in running]
    for rank, process in enumerate(running):
        if process.returncode != 0:
            sys.exit(f"rank {rank} of {' '.join(command)} ended with status {process.returncode}:\n"
                     f"{said[rank]}")
    return said[0]


def read_log(path):
    """(losses, milliseconds) of the steps that count."""
    with open(path, encoding="ascii") as file:
        rows = [line.split("\t") for line in file if not line.startswith("#")]
    return [float(row[1]) for row in rows], [float(row[4]) for row in rows[WARM:]]


def run(contender, o, folder, data, weights, **how):
    """One run of a contender with the flags that all share."""
    log = os.path.join(folder, "log")
    command = [*contender.command(o.build, o.python), "--data", data, "--log", log,
               *(["--init", weights] if weights else []),
               "--size", o.size, "--batch", str(o.batch), "--steps", str(o.steps), "--rate", "0.001",
               "--cores", str(o.cores), *o.shape]
    contender.said = start(command, o.ranks, free_port(), **how)
    losses, ms = read_log(log)
    contender.losses = contender.losses or losses
    contender.medians.append(statistics.median(ms))
    return ms


def same_losses(contenders, most):
    """Equal work: how far the losses of the first step and of all steps are apart, at most."""
    first = contenders[0].losses
    away = max(abs(a - b) for c in contenders[1:] for a, b in zip(first, c.losses))
    start_away = max(abs(first[0] - c.losses[0]) for c in contenders[1:])
    if start_away > 1e-4 or away > most:
        sys.exit(f"the contenders do not compute the same: losses are {start_away:.2e} apart in the "
                 f"first step, {away:.2e} at most")
    return start_away, away


def weights_for(o, folder, data):
    path = os.path.join(folder, "weights.safetensors")
    subprocess.run([o.python, TORCH, "--data", data, "--size", o.size, *o.shape, "--write-init", path],
                   check=True, env=ENVIRONMENT)
    return path


def common_flags(p, size, batch, steps, ranks):
    p.add_argument("--python", default=sys.executable, help="one that has PyTorch (this one)")
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--size", default=size, choices=("tiny", "small", "gpt2"))
    for name, value in (("batch", batch), ("steps", steps), ("ranks", ranks), ("cores", 1),
                        ("layers", 0), ("heads", 0), ("channels", 0), ("context", 0)):
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--write", help="put the table into this file, too")


def shape_of(o):
    return [word for name in ("layers", "heads", "channels", "context") if getattr(o, name)
            for word in ("--" + name, str(getattr(o, name)))]


def versions(o, torch=True):
    code = ("import torch; print('PyTorch', torch.__version__, '(MKL, OpenMP)'"
            " if torch.backends.mkl.is_available() else '')")
    said = subprocess.run([o.python, "-c", code], stdout=subprocess.PIPE, text=True, check=True,
                          env=ENVIRONMENT).stdout.strip() if torch else "without PyTorch"
    with open("/proc/cpuinfo", encoding="ascii") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")),
                     "CPU")
    return f"{said}; {os.cpu_count()} cores of {model}"


def put_out(o, page):
    print(page)
    if o.write:
        with open(o.write, "w", encoding="ascii") as out:
            out.write(page + "\n")


def temporary():
    return tempfile.TemporaryDirectory(prefix="tutti-compare-")
