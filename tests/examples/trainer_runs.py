"""Runs of the example trainers for the tests of this folder: programs, their logs, and what must be
true of them. A case raises AssertionError; main() runs all and says which failed."""

import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
import job

BIN = os.environ.get("TUTTI_BIN", "build/bin")
TUTTIRUN = os.path.join(BIN, "tuttirun")
# Launchers of an outer job are nothing to us.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_"))}


def run(program, *flags, ranks=0, restarts=0, status=0, transport=None, prefix=(), seconds=250,
        elastic=False, settings=None):
    """Run a program of build/bin, under tuttirun for ranks > 0, with more variables of Tutti's if
    need be; its output, both streams."""
    if "--plot" not in flags:
        flags = (*flags, "--plot", "none")
    command = [os.path.join(BIN, program), *map(str, flags)]
    if ranks:
        command = [TUTTIRUN, "-n", str(ranks), "--max-restarts", str(restarts),
                   *(["--elastic"] if elastic else []), *command]
    environment = dict(ENVIRONMENT, **({"TUTTI_TRANSPORT": transport} if transport else {}),
                       **(settings or {}))
    done = subprocess.run([*prefix, *command], env=environment, text=True, timeout=seconds,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    good = done.returncode == status if status is not None else done.returncode != 0
    assert good, f"{' '.join(command)}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def by_hand(program, *flags, ranks, settings=None):
    """Ranks that nobody minds: if one dies, the others are left alone. Their processes."""
    port = str(job.free_port())
    command = [os.path.join(BIN, program), *map(str, flags), "--plot", "none"]
    return [subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(
        ENVIRONMENT, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, TUTTI_IFNAME="lo",
        **(settings or {})))
            for rank in range(ranks)]


def knocking(program, *flags, folder):
    """A newcomer, by hand, who has knocked at the folder's door."""
    newcomer = by_hand(program, *flags, "--join", ranks=1)
    while not any(name.startswith("knock-") for name in os.listdir(folder)):
        assert newcomer[0].poll() is None, newcomer[0].communicate()
        time.sleep(0.01)
    return newcomer


def ends(processes, killed=()):
    """What all said, when they have ended: well, but for those killed."""
    said = [process.communicate(timeout=250)[0] for process in processes]
    for number, process in enumerate(processes):
        wanted = -signal.SIGKILL if number in killed else 0
        assert process.returncode == wanted, f"number {number}: status {process.returncode}\n{said[number]}"
    return said


def log(path):
    """A run's log without its times: (step, loss, rate, norm, check), as text: all bits count."""
    with open(path, encoding="ascii") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines if not line.startswith("#")]
    return [(row[0], row[1], row[2], row[3], row[6]) for row in rows]


def furthest(one, other):
    """The largest difference between the losses of two logs of the same steps."""
    assert [row[0] for row in one] == [row[0] for row in other]
    return max(abs(float(a[1]) - float(b[1])) for a, b in zip(one, other))


def parameters(folder):
    """What a run saved last, byte for byte: tensors by their file's name."""
    newest = os.path.join(folder, max(os.listdir(folder)))
    found = {}
    for name in os.listdir(newest):
        if name.endswith(".safetensors"):
            with open(os.path.join(newest, name), "rb") as file:
                found[name] = file.read()
    assert found, f"no tensors in {newest}: {os.listdir(newest)}"
    return found


def reproducible(program, flags, folder, buckets=()):
    """With the reproducible mode three ranks end with the same parameters however they reduce.
    Without it they do not, or this could not fail. `buckets`: flags that make the buckets small."""
    ways = (("shm", {}, (), {"ranks": 3}), ("tcp", {}, (), {"ranks": 3, "transport": "tcp"}),
            ("threads", {}, ("--threads", 3), {}), ("buckets", {}, buckets, {"ranks": 3}),
            ("one_shot", {"TUTTI_ALGO": "one_shot"}, (), {"ranks": 3, "transport": "tcp"}),
            ("lanes", {"TUTTI_ALGO": "two_shot", "TUTTI_LANES": "3"}, (), {"ranks": 3}),
            ("chain", {"TUTTI_ALGO": "ordered_chain", "TUTTI_FAST": "0"}, (), {"ranks": 3}))
    first = None
    for name, settings, more, how in ways:
        settings = dict(settings, TUTTI_REPRODUCIBLE="1")
        run(program, *flags, *more, "--checkpoints", f"{folder}/{name}", "--log",
            f"{folder}/log-{name}", settings=settings, **how)
        ended = parameters(f"{folder}/{name}")
        first = first or ended
        assert ended == first, f"{name}: other parameters than with {ways[0][0]}"
        assert log(f"{folder}/log-{name}") == log(f"{folder}/log-shm"), name
    run(program, *flags, "--checkpoints", folder + "/free", "--log", folder + "/log-free", ranks=3,
        settings={"TUTTI_ALGO": "ring"})
    assert parameters(folder + "/free") != first, "a ring gives the same parameters"


def main(cases, few):
    """All cases, or with the argument "few" (a build with sanitizers, which is slow) those."""
    failed, cases = 0, few if sys.argv[1:] == ["few"] else cases
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            try:
                case(folder)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                print(f"FAILED: {case.__name__}: {error}")
                failed += 1
    print(f"{len(cases) - failed} of {len(cases)} cases")
    sys.exit(1 if failed else 0)
