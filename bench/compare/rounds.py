"""The rounds of a comparison: every contender runs once per group of sizes and round, in a random
order, each in a short process of its own, so that a drift of the machine meets them all alike."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import contenders
import present

KI, MI = 1 << 10, 1 << 20
RUN_SECONDS = 300  # a run that takes longer is killed and counts as failed
LEAST_ROUNDS = 3   # a time limit never leaves fewer
HOPELESS = 2       # times the fastest peer, at every size of a group in the first round


class Failed(Exception):
    pass


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- what to run -----------------------------------------------------------------------------------

def effort_of(size, job, quick=False):
    """(warm-up, iterations; 0: as many as fill 20 ms), the same for all contenders."""
    if quick:
        return 50, 50
    if size > 16 * MI:
        return 2, 10
    if size <= 4 * KI and job.bound() and job.transport == "shm":
        return 200, 5000
    return 20, 0


def groups_of(sizes, job, together):
    """Runs of sizes that double, of one effort, at most `together` long."""
    groups = []
    for size in sizes:
        last = groups[-1] if groups else None
        if last and len(last) < together and size == 2 * last[-1] and \
                effort_of(size, job) == effort_of(last[-1], job):
            last.append(size)
        else:
            groups.append([size])
    return groups


# ---- one run ---------------------------------------------------------------------------------------

def run(command, env, seconds=None):
    """Standard output and error, and status. The whole process group ends with the call."""
    process = subprocess.Popen(command, env={**os.environ, **env}, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    seconds = seconds or RUN_SECONDS
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Failed(f"no end within {seconds} s")
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


def ours_rows(text, sizes, in_place):
    rows = json.loads(text)["rows"]
    if len(rows) != len(sizes):
        raise Failed(f"{len(rows)} rows for {len(sizes)} sizes")
    place = "in_place" if in_place else "out_of_place"
    return [{"size": size, "p50_us": row[place]["p50_us"], "p99_us": row[place]["p99_us"],
             "mean_us": row[place]["time_us"], "wrong": row[place]["wrong"]}
            for size, row in zip(sizes, rows)]


def run_ours(job, setting, sizes, effort):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = contenders.ours_command(job, setting.memory, sizes, effort, file.name)
        _, errors, status = run(command, {})
        text = file.read().decode()
    if not text:
        raise Failed(last_words(errors, status))
    return ours_rows(text, sizes, job.in_place)


def run_setting(job, setting, sizes, effort):
    if setting.kind() == "ours":
        return run_ours(job, setting, sizes, effort)
    output, errors, status = run(contenders.peer_command(job, setting, sizes, effort), setting.env)
    keep = ("size", "p50_us", "p99_us", "mean_us", "wrong")
    rows = [{key: row[key] for key in keep}
            for row in map(json.loads, filter(lambda line: line.startswith("{"), output.splitlines()))]
    # After wrong results a peer stops: those rows say enough.
    if [row["size"] for row in rows] != sizes and not any(row["wrong"] for row in rows):
        raise Failed(last_words(errors, status))
    return rows


def measure_hop(job):
    """Nanoseconds of a cache line from core to core, one way; None where there is but one core."""
    try:
        output, _, status = run([contenders.program_path(job.build, "ideal"), "--algorithm", "hop"], {})
        return json.loads(output)["hop_ns"] if status == 0 else None
    except (Failed, OSError, ValueError, KeyError):
        return None


MOVED = 2  # times as long a hop after a run as before it, or as short: not the same machine any more
TRIES = 3  # of a run during which the cores moved


def run_settled(job, setting, sizes, effort):
    """The rows of a run, each with the hops measured right before and after it (verdict.py): once more
    if the virtual cores changed their places meanwhile."""
    for _ in range(TRIES):
        before = measure_hop(job)
        rows = run_setting(job, setting, sizes, effort)
        after = measure_hop(job)
        hops = [hop for hop in (before, after) if hop]
        if len(hops) < 2 or max(hops) < MOVED * min(hops):
            break
    return [{**row, "hops_ns": hops} for row in rows]


# ---- all runs --------------------------------------------------------------------------------------

def hopeless(record, sizes, settings):
    """Peers' settings that another was HOPELESS times faster than at every size of the group, judged
    by right results. A group of one size says less: it takes twice the distance."""
    factor = HOPELESS * (2 if len(sizes) == 1 else 1)
    peers = {s.label() for s in settings if s.kind() == "peer"}
    times = {}
    for sample in record["samples"]:
        if sample["size"] in sizes and sample["contender"] in peers and sample["wrong"] == 0:
            times.setdefault(sample["contender"], {})[sample["size"]] = \
                (sample[record["figure"]], max(sample.get("hops_ns") or [1]))

    def behind(size, us, hop):
        # Only by what ran with the cores as far from each other.
        return us > factor * min((t[size][0] for t in times.values()
                                  if size in t and hop / MOVED < t[size][1] < hop * MOVED), default=us)

    return {label for label, t in times.items()
            if all(behind(size, *of) for size, of in t.items())}


def run_group(job, settings, sizes, number, quick, out, chance, record):
    """Each setting once, but for those that are out: (label, first size)."""
    effort = effort_of(sizes[0], job, quick)
    order = [(s, [size for size in sizes if s.plays(size)]) for s in settings]
    order = [(s, mine) for s, mine in order if mine and (s.label(), sizes[0]) not in out]
    chance.shuffle(order)
    for setting, mine in order:
        try:
            rows = run_settled(job, setting, mine, effort)
        except (Failed, OSError, ValueError, KeyError) as error:
            out.add((setting.label(), sizes[0]))
            why = f"{setting.label()} from {present.size_text(mine[0])}: {error}"
            record["failures"].append(why)
            say(f"compare: FAILED: {why}")
            continue
        record["samples"] += [{"contender": setting.label(), "round": number, **row} for row in rows]


def minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def progress(before, number, flags, sizes, took, first):
    """A line: where we are, and how long it may still take by the rounds so far."""
    groups = [time for time in took.values()]
    text = f"compare: {before}round {number + 1} of {flags.rounds}, {present.size_text(sizes[0])} to " \
           f"{present.size_text(sizes[-1])}"
    if number:
        left = sum(groups) * (flags.rounds - number) - sum(took[size] for size in first)
        limit = flags.seconds - flags.spent if flags.seconds else left
        text += f", about {minutes(max(min(left, limit), 0))} left" if left > 0 else ""
    say(text)


def measure(job, settings, groups, flags, record, before="", keep=None):
    """Rounds, on top of those that the record has, until there are enough or the time is used up:
    record["rounds"] says how many. `keep` is called after each. Asked for a number of rounds, one is
    measured at least, however little time there is; else LEAST_ROUNDS in all."""
    chance = random.Random(flags.seed + record["rounds"])
    out, took, begin = set(map(tuple, record.get("out", []))), {}, time.monotonic()
    least = record["rounds"] + 1 if flags.rounds_given else LEAST_ROUNDS
    for number in range(record["rounds"], flags.rounds):
        round_begin = time.monotonic()
        flags.spent = round_begin - begin
        hop = measure_hop(job)
        record["hops_ns"] += [hop] if hop else []
        for index, sizes in enumerate(groups):
            progress(before, number, flags, sizes, took, [g[0] for g in groups[:index]])
            group_begin = time.monotonic()
            run_group(job, settings, sizes, number, flags.quick, out, chance, record)
            took[sizes[0]] = time.monotonic() - group_begin
            if number == 0:
                out |= {(label, sizes[0]) for label in hopeless(record, sizes, settings)}
        record["rounds"], record["out"] = number + 1, sorted(out)
        if keep:
            keep(record)
        now = time.monotonic()
        if flags.seconds and number + 1 >= least and \
                now - begin + (now - round_begin) > flags.seconds:
            break
