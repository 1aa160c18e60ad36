#!/usr/bin/env python3
"""The sweep of Tutti beside its peers' at their best settings and the physical limit: a table of
ratios and a plot. `./dev compare` sets up and builds what this runs.

All contenders run in every round, in a random order, each in a short process of its own per group
of sizes, so that a drift of the machine meets them all alike. Read contenders.py (who, with which
settings), verdict.py (when a ratio is refused), present.py (what is written)."""

import argparse
import datetime
import json
import os
import platform
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import contenders
import present
import verdict

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COLLECTIVES = ["all_reduce", "broadcast", "reduce_scatter", "all_gather"]
KI, MI = 1 << 10, 1 << 20
RUN_SECONDS = 300  # a run that takes longer is killed and counts as failed


def parse_size(text):
    found = re.fullmatch(r"(\d{1,12})([KMG]?)(i?B)?", text, re.I)
    size = int(found.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[found.group(2).upper()] if found else 0
    if size < 4:
        raise argparse.ArgumentTypeError(f"\"{text}\" is no size of at least 4 bytes; 8, 64K, 256M are")
    return size


def positive(text):
    if not re.fullmatch(r"[1-9]\d{0,3}", text):
        raise argparse.ArgumentTypeError(f"\"{text}\" is no number from 1 to 9999")
    return int(text)


def parse_flags(arguments):
    parser = argparse.ArgumentParser(prog="./dev compare", description=__doc__.split("\n\n")[0])
    parser.add_argument("--ranks", type=positive, default=2)
    parser.add_argument("--transport", choices=["shm", "tcp"], default="shm")
    parser.add_argument("--coll", choices=COLLECTIVES, default="all_reduce")
    parser.add_argument("--memory", choices=["library", "malloc", "registered"], default="library",
                        help="of our buffers; the peers have what malloc gives")
    parser.add_argument("--rounds", type=positive, default=None, help="5; with --quick 2")
    parser.add_argument("--sizes", help="a list, 8,64K,1M, instead of -b, -e and -f")
    parser.add_argument("-b", dest="first", type=parse_size, default=8)
    parser.add_argument("-e", dest="last", type=parse_size, default=None, help="256M; with --quick 16M")
    parser.add_argument("-f", dest="factor", type=positive, default=None, help="2; with --quick 8")
    parser.add_argument("--together", type=positive, default=6,
                        help="at most so many sizes in one process; 1: a process for each")
    parser.add_argument("--noise", type=float, default=0.25, help="the most, for a ratio (0.25)")
    parser.add_argument("--figure", choices=["p50_us", "mean_us"], default=None,
                        help="what is compared first: the median of operations timed one by one, or the "
                        "mean of a batch: the default where ranks run ahead of each other, which is in "
                        "broadcast and where there are more ranks than cores")
    parser.add_argument("--seed", type=int, default=1, help="of the random order")
    parser.add_argument("--quick", action="store_true", help="few sizes and rounds: a look, no result")
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--out", default=None, help="folder of the files (BUILD/compare/out)")
    parser.add_argument("--replay", metavar="JSON", help="no runs: judge the samples of this file again")
    flags = parser.parse_args(arguments)
    if flags.factor == 1:
        parser.error("-f 1 never ends")
    if flags.ranks < 2 or flags.ranks > 64:
        parser.error("--ranks is from 2 to 64")
    flags.factor = flags.factor or (8 if flags.quick else 2)
    flags.last = flags.last or (16 * MI if flags.quick else 256 * MI)
    flags.rounds = flags.rounds or (2 if flags.quick else 5)
    ahead = flags.coll == "broadcast" or flags.ranks > len(os.sched_getaffinity(0))
    flags.figure = flags.figure or ("mean_us" if ahead else "p50_us")
    flags.out = flags.out or os.path.join(flags.build, "compare", "out")
    try:
        flags.sizes = sorted({parse_size(s) for s in flags.sizes.split(",")}) if flags.sizes else None
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    return flags


# ---- what to run -----------------------------------------------------------------------------------

def sweep_sizes(flags):
    sizes = flags.sizes
    if not sizes:
        sizes = []
        size = flags.first
        while size <= flags.last:
            sizes.append(size)
            size *= flags.factor
    # A block for each rank has at least one element.
    blocks = flags.coll in ("reduce_scatter", "all_gather")
    least = 4 * flags.ranks if blocks else 4
    return [size for size in sizes if size >= least]


def effort_of(size, flags, cores):
    """(warm-up, iterations; 0: as many as fill 20 ms), the same for all contenders."""
    if size > 16 * MI:
        return 2, 10
    if size <= 4 * KI and flags.ranks <= cores and flags.transport == "shm":
        return 200, 5000
    return 20, 0


def groups_of(sizes, flags, cores):
    """Runs of sizes that double, of one effort, at most `together` long."""
    groups = []
    for size in sizes:
        last = groups[-1] if groups else None
        if last and len(last) < flags.together and size == 2 * last[-1] and \
                effort_of(size, flags, cores) == effort_of(last[-1], flags, cores):
            last.append(size)
        else:
            groups.append([size])
    return groups


# ---- one run ---------------------------------------------------------------------------------------

class Failed(Exception):
    pass


def run(command, env):
    """Standard output and status. The whole process group ends with the call."""
    process = subprocess.Popen(command, env={**os.environ, **env}, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        output, errors = process.communicate(timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"no end within {RUN_SECONDS} s")
    finally:
        if process.poll() is None:
            end(process)
    return output, errors, process.returncode


def end(process):
    """Politely first: mpirun ends its ranks, which are in process groups of their own."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def last_words(errors, status):
    lines = [line.strip() for line in errors.splitlines() if re.search(r"\w", line)]
    return f"status {status}" + (f": {lines[0][:160]}" if lines else "")


def ours_rows(text, sizes, coll):
    """Peers broadcast in place, so that our in-place figure is what they are compared with."""
    rows = json.loads(text)["rows"]
    if len(rows) != len(sizes):
        raise Failed(f"{len(rows)} rows for {len(sizes)} sizes")
    place = "in_place" if coll == "broadcast" else "out_of_place"
    return [{"size": size, "p50_us": row[place]["p50_us"], "p99_us": row[place]["p99_us"],
             "mean_us": row[place]["time_us"], "wrong": row[place]["wrong"]}
            for size, row in zip(sizes, rows)]


def run_ours(job, sizes, effort):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = contenders.ours_command(job, sizes, effort, file.name)
        _, errors, status = run(command, {})
        text = file.read().decode()
    if not text:
        raise Failed(last_words(errors, status))
    return ours_rows(text, sizes, job.coll)


def run_setting(job, setting, sizes, effort):
    if setting.kind() == "ours":
        return run_ours(job, sizes, effort)
    output, errors, status = run(contenders.peer_command(job, setting, sizes, effort), setting.env)
    keep = ("size", "p50_us", "p99_us", "mean_us", "wrong")
    rows = [{key: row[key] for key in keep}
            for row in map(json.loads, filter(lambda line: line.startswith("{"), output.splitlines()))]
    # After wrong results a peer stops: those rows say enough.
    if [row["size"] for row in rows] != sizes and not any(row["wrong"] for row in rows):
        raise Failed(last_words(errors, status))
    return rows


# ---- the whole -------------------------------------------------------------------------------------

def say(text):
    print(text, file=sys.stderr, flush=True)


def measure(job, settings, groups, flags, cores, record):
    chance = random.Random(flags.seed)
    failed = set()
    for sizes in groups:
        effort = (5, 50) if flags.quick else effort_of(sizes[0], flags, cores)
        for number in range(flags.rounds):
            say(f"compare: {present.size_text(sizes[0])} to {present.size_text(sizes[-1])}, round "
                f"{number + 1} of {flags.rounds}")
            order = [(s, [size for size in sizes if s.plays(size)]) for s in settings]
            order = [(s, mine) for s, mine in order if mine and (s.label(), sizes[0]) not in failed]
            chance.shuffle(order)
            for setting, mine in order:
                try:
                    rows = run_setting(job, setting, mine, effort)
                except (Failed, OSError, ValueError, KeyError) as error:
                    failed.add((setting.label(), sizes[0]))
                    why = f"{setting.label()} from {present.size_text(mine[0])}: {error}"
                    record["failures"].append(why)
                    say(f"compare: FAILED: {why}")
                    continue
                record["samples"] += [{"contender": setting.label(), "round": number, **row}
                                      for row in rows]


def first_line(*command):
    if not shutil.which(command[0]):
        return ""
    done = subprocess.run(command, capture_output=True, text=True)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines and done.returncode == 0 else ""


def load():
    return "%.2f %.2f %.2f" % os.getloadavg()


def facts_of(flags, arguments, job, cores):
    lscpu = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    model = re.search(r"^Model name:\s*(.*)", lscpu, re.M)
    hop = first_line(contenders.program_path(job.build, "ideal"), "--algorithm", "hop")
    facts = {
        "command": f"`./dev compare {shlex.join(arguments)}`",
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": f"{model.group(1) if model else platform.machine()}, {cores} cores, "
                   f"Linux {platform.release()}",
        "core to core": f"{json.loads(hop)['hop_ns']} ns one way" if hop else "",
        "Tutti": " ".join([first_line(contenders.program_path(job.build, "allreduce_bench"), "--version"),
                           first_line("git", "-C", TOP, "describe", "--always", "--dirty")]),
        "Open MPI": first_line("mpirun.openmpi", "--version"),
        "MPICH": " ".join(first_line("mpichversion").split()),
        "Gloo": first_line("dpkg-query", "-W", "-f=${Version}", "libgloo-dev"),
        "ranks": "bound to cores" if job.bound() else "more than cores, unbound",
        "load before": load(),
    }
    if job.bound() and not job.can_bind:
        facts["ranks"] = "peers' bound to cores, ours not (this allreduce_bench has no --bind)"
    return {name: value for name, value in facts.items() if value}


def record_of(flags, arguments):
    cores = len(os.sched_getaffinity(0))
    ours = contenders.program_path(flags.build, "allreduce_bench")
    if not os.access(ours, os.X_OK):
        sys.exit(f"compare: there is no {ours}; ./dev compare builds it")
    help_text = subprocess.run([ours, "--help"], capture_output=True, text=True).stdout
    job = contenders.Job(flags.build, flags.coll, flags.ranks, flags.transport, flags.memory, cores,
                         "--bind" in help_text)
    settings = contenders.all_settings(flags.coll, flags.transport)
    missing = contenders.missing(flags.build, settings)
    for peer, why in missing.items():
        say(f"compare: WARNING: {peer} is MISSING and left out: {why}")
    settings = [s for s in settings if s.peer not in missing]
    record = {"coll": flags.coll, "ranks": flags.ranks, "transport": flags.transport,
              "memory": flags.memory, "rounds": flags.rounds, "noise_limit": flags.noise,
              "figure": flags.figure, "facts": facts_of(flags, arguments, job, cores),
              "missing": missing, "failures": [], "samples": [],
              "contenders": [{"label": s.label(), **s.facts()} for s in settings]}
    if os.getloadavg()[0] > 0.5:
        say(f"compare: WARNING: the machine is not quiet (load {load()}): expect noisy rows")
    measure(job, settings, groups_of(sweep_sizes(flags), flags, cores), flags, cores, record)
    record["facts"]["load after"] = load()
    return record


def write_files(record, judged, folder):
    stem = os.path.join(folder, "{coll}_{ranks}_{transport}_{memory}".format(**record))
    os.makedirs(folder, exist_ok=True)
    with open(stem + ".json", "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
        file.write("\n")
    with open(stem + ".md", "w", encoding="utf-8") as file:
        file.write(present.markdown(record, judged))
    drawn = present.plot(record, judged, stem + ".svg")
    if not drawn:
        say("compare: WARNING: no plot (is gnuplot there?)")
    return [stem + ending for ending in (".md", ".json", ".svg")[:3 if drawn else 2]]


def main(arguments):
    flags = parse_flags(arguments)
    if flags.replay:
        with open(flags.replay, encoding="utf-8") as file:
            record = json.load(file)
    else:
        record = record_of(flags, arguments)
    judged = verdict.judge(record)
    files = write_files(record, judged, flags.out)
    print(f"{present.title(record)}\n\n{present.table(record, judged)}\n\n{present.summary(record, judged)}\n")
    for peer, why in record["missing"].items():
        print(f"MISSING, not measured: {peer}: {why}")
    for failure in sorted(set(record["failures"])):
        print(f"FAILED, left out: {failure}")
    print("Files: " + "  ".join(files))
    # Success: every size has its ratio.
    return 0 if judged["rows"] and all(row["ratio"] for row in judged["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
