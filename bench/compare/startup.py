"""`./dev compare --startup`: from launch to the end of init and to the first result, and memory, for 2
to 64 ranks on this host, beside Open MPI and MPICH.

Every contender starts once per round and count, in a random order; figures are medians of the
rounds. Times are of the slowest rank, and the clock starts before the launcher does. Memory is
proportional set size: a rank's private pages and its part of the shared ones, averaged over the
ranks, after the first all-reduce and after an all-to-all in which all pairs talk."""

import datetime
import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import time

import compare
import contenders
from rounds import Failed, last_words, run, say

COUNTS = (2, 4, 8, 16, 32, 64)
START_SECONDS = 120
# Without these it looks for networks first, which takes five times as long.
OPENMPI = contenders.mca(pml="ob1", btl="self,vader", mpi_yield_when_idle=1)
NOISE = 0.5  # interquartile range over median from which a figure is marked
MIB = 1 << 20


def program(build, name):
    return os.path.join(build, "compare", name)


def commands(build):
    """{contender: (command for a number of ranks, its program)} of those that are there."""
    tuttirun = os.path.join(build, "bin", "tuttirun")
    found = {
        "Tutti": (lambda n: [tuttirun, "-n", str(n), "--no-prefix"], "start_tutti", tuttirun),
        "Open MPI": (lambda n: contenders.openmpi_launch(n, False) + OPENMPI,
                     "start_openmpi", "mpirun.openmpi"),
        "MPICH": (lambda n: contenders.mpich_launch(n, False), "start_mpich", "mpiexec.mpich"),
    }
    return {name: (launch, program(build, binary)) for name, (launch, binary, launcher) in found.items()
            if shutil.which(launcher) and os.access(program(build, binary), os.X_OK)}


def start(command):
    """One start: its figures, in ms and bytes."""
    launched = time.monotonic_ns()
    output, errors, status = run(command, {}, START_SECONDS)
    ended = time.monotonic_ns()
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if len(rows) != 1:
        raise Failed(last_words(errors, status))
    row = rows[0]
    ranks = row["ranks"]
    figures = {"init_ms": row["init_ns"] / 1e6, "ready_ms": (row["ready_ns"] - launched) / 1e6,
               "first_ms": (row["first_ns"] - launched) / 1e6, "exit_ms": (ended - launched) / 1e6,
               "pss": row["pss_sum"] / ranks, "pss_all": row["pss_all_sum"] / ranks}
    for name in ("host", "shared", "shared_used", "descriptors"):
        if name in row:
            figures[name] = row[name]
    return figures


def record_of(flags, before=""):
    there = commands(flags.build)
    if "Tutti" not in there:
        raise SystemExit("compare: there is no start_tutti or tuttirun; ./dev compare --startup builds them")
    chance = random.Random(flags.seed)
    record = {"counts": list(COUNTS), "rounds": flags.rounds, "samples": [], "failures": [],
              "missing": [name for name in ("Open MPI", "MPICH") if name not in there],
              "facts": {"machine": platform.machine(), "cores": len(os.sched_getaffinity(0)),
                        "Linux": platform.release(), "load before": compare.load(),
                        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
                        "Open MPI": compare.first_line("mpirun.openmpi", "--version"),
                        "MPICH": " ".join(compare.first_line("mpichversion").split()),
                        "Tutti": compare.first_line("git", "-C", compare.TOP, "describe", "--always")}}
    lscpu = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    model = re.search(r"^Model name:\s*(.*)", lscpu, re.M)
    record["facts"]["machine"] = model.group(1) if model else record["facts"]["machine"]
    for number in range(flags.rounds):
        for count in COUNTS:
            say(f"compare: {before}start-up of {count} ranks, round {number + 1} of {flags.rounds}")
            order = list(there.items())
            chance.shuffle(order)
            for name, (launch, binary) in order:
                try:
                    figures = start(launch(count) + [binary])
                except (Failed, OSError, ValueError, KeyError) as error:
                    record["failures"].append(f"{name}, {count} ranks: {error}")
                    continue
                record["samples"].append({"contender": name, "ranks": count, "round": number, **figures})
    return record


# ---- the page --------------------------------------------------------------------------------------

def figure(record, name, count, key):
    """(median, noise) over the rounds; None where a round is missing."""
    values = [s[key] for s in record["samples"]
              if s["contender"] == name and s["ranks"] == count and key in s]
    if len(values) < record["rounds"]:
        return None
    middle = statistics.median(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (middle,) * 3
    return middle, (high - low) / middle if middle else 0


def text_of(found, scale=1.0, digits=1):
    if not found:
        return "-"
    middle, noise = found
    return f"{middle / scale:.{digits}f}" + (" (noisy)" if noise > NOISE else "")


def names_of(record):
    return [n for n in ("Tutti", "Open MPI", "MPICH") if any(s["contender"] == n for s in record["samples"])]


def table(record, columns):
    """`columns`: (head, key, scale, digits) for each contender."""
    names = names_of(record)
    heads = ["ranks"] + [f"{name} {head}" for head, *_ in columns for name in names]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---:|" * len(heads)]
    for count in record["counts"]:
        cells = [str(count)] + [text_of(figure(record, name, count, key), scale, digits)
                                for _, key, scale, digits in columns for name in names]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def own_memory(record):
    columns = (("host KiB", "host", 1024), ("shared segments, address space KiB", "shared", 1024),
               ("of these in use KiB", "shared_used", 1024), ("descriptors", "descriptors", 1))
    if not any("host" in s for s in record["samples"]):
        return ""
    lines = ["| ranks | " + " | ".join(head for head, *_ in columns) + " |", "|" + "---:|" * (len(columns) + 1)]
    for count in record["counts"]:
        cells = [text_of(figure(record, "Tutti", count, key), scale, 0) for _, key, scale in columns]
        lines.append(f"| {count} | " + " | ".join(cells) + " |")
    return "\n".join(["", "What our communicator holds (`tutti_comm_memory`), at the rank that holds most, all "
                      "pairs connected:", "", *lines, ""])


def ratios(record):
    """(least ratio of the best MPI's time over ours, ranks) for time to ready, or None."""
    found = []
    for count in record["counts"]:
        ours = figure(record, "Tutti", count, "ready_ms")
        others = [figure(record, name, count, "ready_ms") for name in ("Open MPI", "MPICH")]
        others = [other[0] for other in others if other]
        if ours and others:
            found.append((min(others) / ours[0], count))
    return found


def page(record, picture):
    found, settings = ratios(record), " ".join(OPENMPI)
    lines = ["# Start-up on one host", "", "- command: `./dev compare --startup`"]
    lines += [f"- {name}: {value}" for name, value in record["facts"].items() if value]
    lines += [f"- MISSING, not measured: {name}" for name in record["missing"]]
    lines += [f"- FAILED: {failure}" for failure in record["failures"]]
    lines += ["", f"![start-up]({picture})"] if picture else []
    lines += ["", f"Medians of {record['rounds']} interleaved rounds; times of the slowest rank, from before the "
              f"launcher starts (tuttirun, mpirun, mpiexec; Open MPI with `{settings}`), but "
              "for \"in init\". The first result is that of an all-reduce of one number."]
    if found:
        least = min(found)
        lines.append(f"From launch to the end of init, the faster MPI takes at least {least[0]:.1f} times our time "
                     f"(at {least[1]} ranks), at most {max(found)[0]:.1f} times (at {max(found)[1]}).")
    lines += ["", "Time in ms:", "",
              table(record, (("in init", "init_ms", 1, 1), ("launch to ready", "ready_ms", 1, 1))), "",
              table(record, (("launch to first result", "first_ms", 1, 1), ("launch to exit", "exit_ms", 1, 1))),
              "", "Memory of a rank in MiB (proportional set size: its own pages and its part of the shared "
              "ones), after the first all-reduce, and once all pairs have talked:", "",
              table(record, (("MiB", "pss", MIB, 2), ("MiB, all pairs", "pss_all", MIB, 2)))]
    return "\n".join(lines) + "\n" + own_memory(record)


def gnuplot_script(record, path):
    colours = {"Tutti": "#1060c0", "Open MPI": "#f0a030", "MPICH": "#c04040"}
    names = names_of(record)
    lines = []
    for panel, (key, scale) in enumerate((("ready_ms", 1), ("pss_all", MIB))):
        for index, name in enumerate(names):
            points = [(count, figure(record, name, count, key)) for count in record["counts"]]
            lines += [f"$p{panel}n{index} << END"]
            lines += [f"{count} {found[0] / scale}" for count, found in points if found] + ["END"]
    quoted = path.replace("'", "''")
    ticks = ", ".join(map(str, record["counts"]))
    lines += ["set terminal svg size 1100,440 font 'sans,12' background rgb 'white'", f"set output '{quoted}'",
              "set multiplot layout 1,2", "set logscale x 2", f"set xtics ({ticks})", "set xlabel 'ranks'",
              "set xrange [1.8:72]", "set grid", "set key top left reverse Left", "set logscale y 10"]
    for panel, head in enumerate(("from launch to the end of init (ms)", "memory of a rank, all pairs connected (MiB)")):
        lines += [f"set title '{head}: lower is better'",
                  "plot " + ", ".join(f"$p{panel}n{index} using 1:2 with linespoints lw 3 pt 7 ps 0.6 "
                                      f"lc rgb '{colours[name]}' title '{name}'"
                                      for index, name in enumerate(names))]
    return "\n".join(lines + ["unset multiplot"]) + "\n"


def report(record, folder):
    """Write startup.md and startup.svg. Returns whether we were faster at every count."""
    os.makedirs(folder, exist_ok=True)
    stem = os.path.join(folder, "startup")
    drawn = shutil.which("gnuplot") and \
        subprocess.run(["gnuplot", "-"], input=gnuplot_script(record, stem + ".svg"), text=True).returncode == 0
    text = page(record, "startup.svg" if drawn else None)
    with open(stem + ".md", "w", encoding="utf-8") as file:
        file.write(text)
    print(text)
    print(f"Files: {stem}.md" + (f"  {stem}.svg" if drawn else ""), flush=True)
    found = ratios(record)
    return bool(found) and all(ratio > 1 for ratio, _ in found)


def main(flags):
    return 0 if report(record_of(flags), flags.out) else 1
