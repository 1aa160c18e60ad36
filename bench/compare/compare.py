#!/usr/bin/env python3
"""The sweep of Tutti beside its peers' at their best settings and the physical limit: a table of
ratios and a plot. `./dev compare` sets up and builds what this runs.

Read rounds.py (what is run when), contenders.py (who, with which settings), verdict.py (when a ratio
is refused), present.py (what is written); whole.py (--all) and startup.py (--startup)."""

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
import contenders
import present
import verdict
from rounds import groups_of, measure, say

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
IN_PLACE = ["all_reduce", "broadcast", "reduce_scatter", "all_gather"]  # the peers' programs know it
BLOCKS = ["reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"]  # one a rank
COLLECTIVES = IN_PLACE + ["reduce", "all_to_all", "gather", "scatter", "sendrecv"] + \
    [coll + "_v" for coll in BLOCKS]
KI, MI = 1 << 10, 1 << 20
MEMORIES = ["library", "malloc", "registered"]


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


def usual_place(coll):
    return "in" if coll == "broadcast" else "out"


def parse_flags(arguments):
    parser = argparse.ArgumentParser(prog="./dev compare", description=__doc__.split("\n\n")[0])
    parser.add_argument("--ranks", type=positive, default=2)
    parser.add_argument("--transport", choices=["shm", "tcp"], default="shm")
    parser.add_argument("--coll", choices=COLLECTIVES, default="all_reduce")
    parser.add_argument("--memory", default="library", help="of our buffers: library, malloc, "
                        "registered, or a list; the peers have what malloc gives")
    parser.add_argument("--place", choices=["in", "out"], default=None,
                        help="operations in or out of place (out; broadcast, which MPI has in place: in)")
    parser.add_argument("--cores", choices=["free", "even"], default="free", help="where ranks "
                        "outnumber cores: they run where the system puts them (free), or rank r of "
                        "all contenders on core r mod cores (even), which is less noisy")
    parser.add_argument("--rewrite", action="store_true",
                        help="new values in the inputs, untimed, before each operation")
    parser.add_argument("--rounds", type=positive, default=None, help="5; with --quick 2; with --all: so "
                        "many in each part, adding to those that were measured with this build")
    parser.add_argument("--sizes", help="a list, 8,64K,1M, instead of -b, -e and -f")
    parser.add_argument("-b", dest="first", type=parse_size, default=8)
    parser.add_argument("-e", dest="last", type=parse_size, default=None, help="256M; with --quick 16M")
    parser.add_argument("-f", dest="factor", type=positive, default=None, help="2; with --quick 8")
    parser.add_argument("--together", type=positive, default=6,
                        help="at most so many sizes in one process; 1: a process for each")
    parser.add_argument("--noise", type=float, default=0.25, help="the most, for a ratio (0.25)")
    parser.add_argument("--figure", choices=["p50_us", "mean_us"], default=None,
                        help="what is compared first: the median of operations timed one by one, or the "
                        "mean of a batch: the default where ranks run ahead of each other, which is with a "
                        "root and where there are more ranks than cores")
    parser.add_argument("--seconds", type=positive, default=None,
                        help="no round begins that would likely end later, but for the first three")
    parser.add_argument("--seed", type=int, default=1, help="of the random order")
    parser.add_argument("--quick", action="store_true", help="few sizes and rounds: a look, no result")
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--out", default=None, help="folder of the files (BUILD/compare/out)")
    parser.add_argument("--all", action="store_true", help="everything there is a table of (see --parts)")
    parser.add_argument("--parts", help="with --all: a list of parts; \"list\" lists them")
    parser.add_argument("--again", action="store_true",
                        help="with --all: measure parts again that were measured with this build")
    parser.add_argument("--startup", action="store_true",
                        help="instead: time and memory of starting 2 to 64 ranks beside MPI_Init")
    parser.add_argument("--replay", metavar="JSON", help="no runs: judge the samples of this file again")
    flags = parser.parse_args(arguments)
    if flags.factor == 1:
        parser.error("-f 1 never ends")
    if flags.ranks < 2 or flags.ranks > 64:
        parser.error("--ranks is from 2 to 64")
    flags.factor = flags.factor or (8 if flags.quick else 2)
    flags.last = flags.last or (16 * MI if flags.quick else 256 * MI)
    flags.rounds_given = flags.rounds is not None
    flags.rounds = flags.rounds or (2 if flags.quick else 5)
    flags.memories = flags.memory.split(",")
    if not set(flags.memories) <= set(MEMORIES) or len(set(flags.memories)) < len(flags.memories):
        parser.error(f"--memory {flags.memory}: a list out of {', '.join(MEMORIES)}")
    flags.place = flags.place or usual_place(flags.coll)
    if flags.place == "in" and flags.coll not in IN_PLACE:
        parser.error(f"--place in is for {', '.join(IN_PLACE)}")
    # Rewriting ends in a barrier, so that no rank is ahead in a single operation.
    ahead = not flags.rewrite and (flags.coll in contenders.ROOTED or
                                   flags.ranks > len(os.sched_getaffinity(0)))
    flags.figure = flags.figure or ("mean_us" if ahead else "p50_us")
    flags.out_given = bool(flags.out)
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
    least = 4 * flags.ranks if flags.coll in BLOCKS else 4
    if flags.coll.endswith("_v"):  # the smallest has one, whatever the others have
        least = 4 * flags.ranks * contenders.UNEVEN
    return [size for size in sizes if size >= least]


# ---- the whole -------------------------------------------------------------------------------------

def first_line(*command):
    if not shutil.which(command[0]):
        return ""
    done = subprocess.run(command, capture_output=True, text=True)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines and done.returncode == 0 else ""


def load():
    return "%.2f %.2f %.2f" % os.getloadavg()


def facts_of(flags, arguments, job):
    lscpu = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    model = re.search(r"^Model name:\s*(.*)", lscpu, re.M)
    facts = {
        "command": f"`./dev compare {shlex.join(arguments)}`",
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": f"{model.group(1) if model else platform.machine()}, {job.cores} cores, "
                   f"Linux {platform.release()}",
        "Tutti": " ".join([first_line(contenders.program_path(job.build, "allreduce_bench"), "--version"),
                           first_line("git", "-C", TOP, "describe", "--always", "--dirty")]),
        "Open MPI": first_line("mpirun.openmpi", "--version"),
        "MPICH": " ".join(first_line("mpichversion").split()),
        "Gloo": first_line("dpkg-query", "-W", "-f=${Version}", "libgloo-dev"),
        "ranks": "bound to cores" if job.bound() else "more than cores, " +
                 (f"rank r bound to core r mod {job.cores}" if job.even else "unbound"),
        "load before": load(),
    }
    return {name: value for name, value in facts.items() if value}


def record_of(flags, arguments, before="", begun=None, keep=None):
    """Measure; one record with ours in every kind of memory asked for. `begun` is the record of rounds
    measured before, `keep` takes it after each round."""
    cores = len(os.sched_getaffinity(0))
    ours = contenders.program_path(flags.build, "allreduce_bench")
    if not os.access(ours, os.X_OK):
        sys.exit(f"compare: there is no {ours}; ./dev compare builds it")
    job = contenders.Job(flags.build, flags.coll, flags.ranks, flags.transport, cores,
                         flags.place == "in", flags.rewrite, flags.cores == "even")
    settings = contenders.all_settings(flags.coll, flags.transport, flags.ranks, cores, flags.memories)
    missing = contenders.missing(flags.build, settings)
    for peer, why in missing.items():
        say(f"compare: WARNING: {peer} is MISSING and left out: {why}")
    settings = [s for s in settings if s.peer not in missing]
    record = begun or {
              "coll": flags.coll, "ranks": flags.ranks, "transport": flags.transport,
              "memory": flags.memory, "place": flags.place, "rewrite": flags.rewrite,
              "rounds": 0, "noise_limit": flags.noise, "figure": flags.figure,
              "facts": facts_of(flags, arguments, job), "missing": missing, "failures": [],
              "hops_ns": [], "samples": [],
              "contenders": [{"label": s.label(), **s.facts()} for s in settings]}
    if os.getloadavg()[0] > 0.5:
        say(f"compare: WARNING: the machine is not quiet (load {load()}): expect noisy rows")
    measure(job, settings, groups_of(sweep_sizes(flags), job, flags.together), flags, record, before, keep)
    record["facts"]["load after"] = load()
    return record


def stem_of(record):
    stem = "{coll}_{ranks}_{transport}_{memory}".format(**record)
    place = record.get("place", usual_place(record["coll"]))
    if place != usual_place(record["coll"]):
        stem += f"_{place}_of_place" if place == "out" else "_in_place"
    return stem + ("_rewrite" if record.get("rewrite") else "")


def one_memory(record, memory):
    """The record with ours in this memory only, under our plain name."""
    ours = {c["label"]: c.get("memory", memory) for c in record["contenders"] if c["kind"] == "ours"}
    out = {label for label, its in ours.items() if its != memory}
    plain = {label: contenders.OURS for label in ours}
    return {**record, "memory": memory,
            "contenders": [{**c, "label": plain.get(c["label"], c["label"])}
                           for c in record["contenders"] if c["label"] not in out],
            "samples": [{**s, "contender": plain.get(s["contender"], s["contender"])}
                        for s in record["samples"] if s["contender"] not in out]}


def write_record(record, folder):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, stem_of({**record, "memory": record["memory"].replace(",", "_")}) + ".json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(record, file)
        file.write("\n")
    return path


def write_page(record, judged, folder):
    """The table and the plot of one kind of memory."""
    stem = os.path.join(folder, stem_of(record))
    os.makedirs(folder, exist_ok=True)
    drawn = present.plot(record, judged, stem + ".svg")
    if not drawn:
        say("compare: WARNING: no plot (is gnuplot there?)")
    with open(stem + ".md", "w", encoding="utf-8") as file:
        file.write(present.markdown(record, judged, os.path.basename(stem) + ".svg" if drawn else None))
    return [stem + ".md"] + [stem + ".svg"] * drawn


def report(record, folder):
    """Pages and what they say, for each kind of memory. Returns whether every size has a ratio."""
    good, files = True, []
    for memory in record["memory"].split(","):
        single = one_memory(record, memory)
        judged = verdict.judge(single)
        files += write_page(single, judged, folder)
        print(f"{present.title(single)}\n\n{present.table(single, judged)}\n\n"
              f"{present.summary(single, judged)}\n")
        good = good and bool(judged["rows"]) and all(row["ratio"] for row in judged["rows"])
    for peer, why in record["missing"].items():
        print(f"MISSING, not measured: {peer}: {why}")
    for failure in sorted(set(record["failures"])):
        print(f"FAILED, left out: {failure}")
    print("Files: " + "  ".join(files), flush=True)
    return good


def main(arguments):
    flags = parse_flags(arguments)
    if flags.startup:
        import startup
        return startup.main(flags)
    if flags.all:
        import whole
        return whole.main(flags)
    if flags.replay:
        with open(flags.replay, encoding="utf-8") as file:
            record = json.load(file)
    else:
        record = record_of(flags, arguments)
        print(f"Samples: {write_record(record, flags.out)}")
    return 0 if report(record, flags.out) else 1


if __name__ == "__main__":
    sys.modules["compare"] = sys.modules["__main__"]  # whole.py imports it: one copy
    sys.exit(main(sys.argv[1:]))
