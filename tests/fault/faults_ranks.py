"""Faults of ranks: deaths, standstills, wrong calls, scarcity, clocks (faults.py)."""
import os
import re
import signal
import subprocess
import time

import befall
import job
from befall import GRACE, INIT_TIMEOUT, TIMEOUT, Ranks

HOST = ("shm", "tcp")
ALL = ("shm", "tcp", "device")
SHRINK_SECONDS = INIT_TIMEOUT + GRACE


def finish(ranks, victim, at, limit, names=None, error=True, tcp=frozenset(), **more):
    """Wait, look, judge, clear away: the row."""
    try:
        row = {"survivors": befall.survivors_of(ranks, victim, at, limit), **more}
        befall.end_victim(ranks, victim)
        row["left"] = befall.left_outside(ranks, tcp)
        row["limit_s"] = limit
        row["wrong"] = befall.verdict(row, limit, names, error)
        return row
    finally:
        ranks.end()


def rank_named(rank):
    """An error that speaks of this rank."""
    return rf"ranks? ([\d, ]+ )?{rank}\b"


# ---- signals ------------------------------------------------------------------------------------

def signalled(transport, number, where, victim=1, shrinks=False, environment=None):
    """A signal to a rank: while it works, idles between calls, or is about to destroy."""
    flags = [] if where == "working" else ["--pause", where]
    if shrinks:
        flags += ["--excluded", victim]
    ranks = Ranks(transport, flags=flags, environment=environment)
    try:
        for rank in ranks.jobs:
            ranks.until(rank, "working" if where == "working" else "pause")
        if where == "working":
            time.sleep(0.05)
        at = time.monotonic()
        os.kill(ranks.jobs[victim].process.pid, number)
        if where != "working":
            ranks.release()
    except BaseException:
        ranks.end()
        raise
    limit = GRACE if number == signal.SIGKILL else TIMEOUT + GRACE
    if where == "destroy":  # bounded, and nobody is owed an error
        row = finish(ranks, victim, at, 5 + GRACE, error=False)
        row["wrong"] += [f"rank {r['rank']} took {r['over']} s to destroy"
                         for r in row["survivors"] if r.get("over", 0) > 5 + GRACE]
        return row
    # Of a stopped rank, not all hear by name: a ring's neighbours do, and the others through them.
    row = finish(ranks, victim, at, limit, rank_named(victim))
    if shrinks:
        row["wrong"] += [f"rank {r['rank']} did not go on: {r.get('later')}"
                         for r in row["survivors"] if r.get("shrunk") != "2 ranks"]
    return row


def in_init(transport, number):
    """A signal to a rank that has met the others, before it is connected to them."""
    carrier = "shm" if transport == "device" else transport
    ranks = Ranks(transport, of_rank={1: (["--at-log", f": transport {carrier}", "--signal",
                                          int(number)], {})}, flags=["--bytes", "4096"])
    try:
        at = ranks.until(1, "signal")
    except BaseException:
        ranks.end()
        raise
    limit = GRACE if number == signal.SIGKILL else INIT_TIMEOUT + TIMEOUT + GRACE
    return finish(ranks, 1, at, limit, rank_named(1))


def absent(transport):
    """A rank that never comes."""
    ranks = Ranks(transport, of_rank={1: (None, {})})
    return finish(ranks, 1, time.monotonic(), INIT_TIMEOUT + GRACE, rank_named(1))


def in_shrink(transport, number):
    """One rank is killed; of the three others, which shrink, one dies or stops on the way."""
    ranks = Ranks(transport, size=4, flags=["--excluded", 1],
                  of_rank={3: (["--late"], {})})
    try:
        for rank in ranks.jobs:
            ranks.until(rank, "working")
        os.kill(ranks.jobs[1].process.pid, signal.SIGKILL)
        ranks.until(3, "late")
        os.kill(ranks.jobs[3].process.pid, number)
        at = time.monotonic()
        row = {"survivors": [r for r in befall.survivors_of(ranks, 3, at, SHRINK_SECONDS)
                             if r["rank"] != 1]}
        befall.end_victim(ranks, 3)
        row["left"] = befall.left_outside(ranks)
        died = number == signal.SIGKILL  # that is told at once
        row["limit_s"] = limit = GRACE if died else INIT_TIMEOUT + TIMEOUT + GRACE
        wrong = []
        for record in row["survivors"]:  # the error of the shrinking is the one of this row
            if "later" in record:
                code, _, text = record.pop("later").partition(" ")
                record.update(code=int(code), text=text.partition(" ")[2])
                record["seconds"] = befall.took(at, ranks.events(record["rank"], "error")[1][0])
            elif record.get("shrunk"):
                wrong.append(f"rank {record['rank']} shrank without rank 3: try again")
        row["wrong"] = wrong + befall.verdict(row, limit, rank_named(3) if died else rank_named(2) + "|" + rank_named(3))
        return row
    finally:
        ranks.end()


# ---- calls --------------------------------------------------------------------------------------

def misdeed(transport, what, names, limit=TIMEOUT + GRACE):
    """Rank 1 does something else than the others."""
    ranks = Ranks(transport, of_rank={1: (["--misdeed", what], {})}, flags=["--bytes", "65536"])
    try:
        at = ranks.until(1, "leaves" if what == "leave" else "misdeed")
    except BaseException:
        ranks.end()
        raise
    # All three must know, the culprit too, unless it has left.
    row = finish(ranks, 1 if what == "leave" else None, at, limit, names)
    return late_comparison(row) if transport == "device" and what in ("type", "operator") else row


def late_comparison(row):
    """Calls on device memory that move as many bytes are compared while they run
    (docs/failures.md): sums that nobody has vouched for may be wrong until the error is there."""
    seen = [r for r in row["survivors"] if r.get("wrong_sums")]
    if seen:
        row["note"] = "before it, wrong sums on ranks " + ", ".join(str(r["rank"]) for r in seen)
    row["wrong"] = [text for text in row["wrong"]
                    if not any(text == befall.wrong_sum(r) for r in seen if r["code"])]
    return row


# ---- scarcity -----------------------------------------------------------------------------------

def scarce(transport, flags, names, error=True, limit=TIMEOUT + GRACE, late=False, size=3,
           environment=None):
    """Rank 1 lacks something; the others must hear why."""
    ranks = Ranks(transport, size=size, of_rank={1: (flags, environment or {})})
    try:
        at = ranks.until(1, "working") if late else ranks.until(1, "begins")
        if error is not True:
            ranks.until(0, "working")
            ranks.release()
    except BaseException:
        ranks.end()
        raise
    return finish(ranks, None, at, limit, names, error)


def memory_cgroup(transport):
    """The kernel kills rank 1 for the memory that its group may have."""
    group = f"/sys/fs/cgroup/memory/tutti-fault-{os.getpid()}"
    try:
        os.mkdir(group)
    except OSError as error:
        raise job.Skip(f"no memory cgroup of our own: {error}") from None
    try:
        with open(f"{group}/memory.limit_in_bytes", "w", encoding="ascii") as file:
            file.write("24M")
        ranks = Ranks(transport, flags=["--bytes", 16 << 20], wrap=lambda rank: (
            ["sh", "-c", f"echo $$ > {group}/tasks && exec \"$@\"", "sh"] if rank == 1 else []))
        at = time.monotonic()
        while ranks.jobs[1].process.poll() is None and time.monotonic() < at + 20:
            time.sleep(0.005)
        at = time.monotonic()
        return finish(ranks, 1, at, GRACE, rank_named(1))
    finally:
        for _ in range(100):
            try:
                os.rmdir(group)
                break
            except OSError:
                time.sleep(0.02)


def full_disk(transport):
    """Not a byte is free where temporary and shared files go."""
    if os.environ.get("TUTTI_ISOLATED") != "yes":
        raise job.Skip("mounts of our own are needed")
    folders = ("/tmp", "/dev/shm")
    if befall.RANK.startswith(tuple(f"{folder}/" for folder in folders)):
        raise job.Skip(f"{befall.RANK} would be hidden by what is mounted over its folder")
    for folder in folders:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], check=True)
        with open(f"{folder}/fill", "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
    ranks = Ranks(transport, flags=["--bytes", 1 << 16])
    try:
        for rank in ranks.jobs:
            ranks.until(rank, "working")
    except BaseException:
        ranks.end()
        raise
    ranks.release()
    return finish(ranks, None, time.monotonic(), TIMEOUT + GRACE, error=False)


# ---- clocks -------------------------------------------------------------------------------------

def clock_jumps(transport, seconds, stops):
    """The time of day jumps on all ranks; with a stopped rank, deadlines must hold all the same."""
    clock = f"/tmp/tutti-clock-{os.getpid()}"
    ranks = Ranks(transport, environment={**befall.preload(befall.CLOCK), "FAULT_CLOCK": clock})
    try:
        for rank in ranks.jobs:
            ranks.until(rank, "working")
        with open(clock, "w", encoding="ascii") as file:
            file.write(str(seconds))
        at = time.monotonic()
        if stops:
            os.kill(ranks.jobs[1].process.pid, signal.SIGSTOP)
        else:
            time.sleep(1)
            ranks.release()
        os.sync()
        row = {"survivors": befall.survivors_of(ranks, 1 if stops else None, at, TIMEOUT + GRACE)}
        befall.end_victim(ranks, 1)
        os.unlink(clock)
        row["left"] = befall.left_outside(ranks)
        row["limit_s"] = TIMEOUT + GRACE
        row["wrong"] = befall.verdict(row, TIMEOUT + GRACE, rank_named(1), stops)
        row["wrong"] += [f"the clock of rank {r['rank']} did not jump" for r in row["survivors"]
                         if not any(abs(float(text) - seconds) < 5 for _, _, text in
                                    ranks.events(r["rank"], "jumped"))]
        row["wrong"] += [f"rank {r['rank']} gave up after {r['seconds']} s already"
                         for r in row["survivors"] if r["code"] and r["seconds"] < TIMEOUT - 0.5]
        return row
    finally:
        ranks.end()


# ---- bytes --------------------------------------------------------------------------------------

def bits_flipped(settings):
    """A job of which rank 1 receives some bits wrong, and a second more; its row, how many bits."""
    ranks = Ranks("tcp", flags=["--whole"], environment={"TUTTI_TCP_RESUME": "0", **settings},
                  of_rank={1: ([], {**befall.preload(befall.FLIP), "FAULT_FLIP": "5000011",
                                    "FAULT_FLIPS": "20"})})
    try:
        at = ranks.until(1, "begins")
        if settings.get("TUTTI_TCP_RESUME") or not settings:
            for rank in ranks.jobs:
                ranks.until(rank, "working")
            ranks.until(1, "flipped")
            time.sleep(1)
            ranks.release()
        row = {"survivors": befall.survivors_of(ranks, None, at, TIMEOUT + GRACE)}
        row["left"] = befall.left_outside(ranks)
        row["limit_s"] = GRACE
        said = re.search(r"fault_flip: (\d+) bits since (.*)", "\n".join(ranks.jobs[1].err))
        for record in row["survivors"]:
            if record["code"] and said:
                record["seconds"] = round(record["seconds"] + at - float(said[2]), 3)
        return row, int(said[1]) if said else 0
    finally:
        ranks.end()


def flipped(settings, names):
    """Bits flipped are noticed; `names`: what all are told, None: it is mended. The same without
    checksums must do harm, or there was nothing to notice."""
    control, harm = bits_flipped({})
    row, bits = bits_flipped(settings)
    row["wrong"] = befall.verdict(row, GRACE, names, names is not None)
    wrong = [str(r["rank"]) for r in control["survivors"] if r.get("wrong_sums")]
    row["note"] = (f"{bits} flipped; without the setting {harm} flipped bits gave ranks "
                   f"{', '.join(wrong)} wrong sums, and no error")
    if not wrong or not bits:
        row["wrong"].append(f"{bits} bits, and {harm} without checksums, which did no harm")
    return row


def byte_cases():
    """What comes is not what was sent."""
    report, mend = {"TUTTI_TCP_CHECKSUM": "1"}, {"TUTTI_TCP_CHECKSUM": "1", "TUTTI_TCP_RESUME": "1"}
    yield ("bits flipped on the way to rank 1, TUTTI_TCP_CHECKSUM=1", "tcp",
           lambda: flipped(report, r"do not fit their checksum|" + rank_named(1)))
    yield ("bits flipped on the way to rank 1, TUTTI_TCP_CHECKSUM=1 and RESUME=1", "tcp",
           lambda: flipped(mend, None))


# ---- the list -----------------------------------------------------------------------------------

def signal_cases(transports=ALL):
    """Deaths and standstills, by moment."""
    kill, stop = signal.SIGKILL, signal.SIGSTOP
    for transport in transports:
        yield "rank 1 never comes", transport, lambda t=transport: absent(t)
        yield "rank 1 killed in init", transport, lambda t=transport: in_init(t, kill)
        yield "rank 1 stopped in init", transport, lambda t=transport: in_init(t, stop)
        for victim in (0, 1):
            yield (f"rank {victim} killed in mid-operation", transport,
                   lambda t=transport, v=victim: signalled(t, kill, "working", v))
        for victim in (1, 0):
            yield (f"rank {victim} stopped in mid-operation", transport,
                   lambda t=transport, v=victim: signalled(t, stop, "working", v))
        yield "rank 1 killed while idle", transport, lambda t=transport: signalled(t, kill, "idle")
        yield "rank 1 stopped while idle", transport, lambda t=transport: signalled(t, stop, "idle")
        yield ("rank 1 killed before its destroy", transport,
               lambda t=transport: signalled(t, kill, "destroy"))
        yield ("rank 1 stopped before its destroy", transport,
               lambda t=transport: signalled(t, stop, "destroy"))
        yield ("rank 1 killed, the others shrink and go on", transport,
               lambda t=transport: signalled(t, kill, "working", 1, True))
        yield ("rank 0 killed, the others shrink and go on", transport,
               lambda t=transport: signalled(t, kill, "working", 0, True))
        yield ("rank 1 stopped, the others shrink and go on", transport,
               lambda t=transport: signalled(t, stop, "working", 1, True))
    if "tcp" not in transports:
        return
    sealed = {"TUTTI_TCP_CHECKSUM": "1", "TUTTI_TCP_ENCRYPT": "1", "TUTTI_TCP_RESUME": "1"}
    for number, what in ((kill, "killed"), (stop, "stopped")):
        yield (f"rank 1 {what} in mid-operation, with sealed streams that resume", "tcp",
               lambda n=number: signalled("tcp", n, "working", environment=sealed))
    for transport in HOST:
        yield "another rank killed in shrink", transport, lambda t=transport: in_shrink(t, kill)
        yield "another rank stopped in shrink", transport, lambda t=transport: in_shrink(t, stop)


def call_cases(transports=ALL):
    """What rank 1 calls, or does."""
    both = r"called .*\((count|root) .* called .*\((count|root) "  # both sides of it
    for transport in transports:
        yield ("rank 1 aborts", transport,
               lambda t=transport: misdeed(t, "abort", r"rank 1 .*aborted.*the user has asked",
                                           GRACE))
        yield "rank 1 leaves early", transport, lambda t=transport: misdeed(t, "leave",
                                                                            rank_named(1))
        for what in ("operation", "count", "type", "operator"):
            if transport == "device" and what == "operation":
                continue
            yield (f"rank 1 calls with another {what}", transport,
                   lambda t=transport, w=what: misdeed(t, w, both))


def settings_cases():
    """What all ranks must have alike."""
    for name in ("TUTTI_TCP_CHECKSUM", "TUTTI_TCP_ENCRYPT"):
        yield (f"rank 1 alone has {name}=1", "tcp",
               lambda n=name: scarce("tcp", [], "set them alike on all ranks|" + rank_named(1),
                                     environment={n: "1"}))


def scarcity_cases(transports=ALL):
    """Too little of something."""
    denied = [(call, names) for call, names in (
        ("memfd_create", r"memfd|memory"), ("ftruncate", r"ftruncate|space|memfd|memory"),
        ("eventfd2", r"eventfd"), ("epoll_create1", r"descriptors|epoll"))]
    for transport in transports:
        yield ("rank 1 has no descriptors at start", transport,
               lambda t=transport: scarce(t, ["--files", 2], r"ulimit -n|open files|rank 1"))
        yield ("rank 1 runs out of descriptors in init", transport,
               lambda t=transport: scarce(t, ["--files", 6], r"ulimit -n|open files|rank 1"))
        yield ("no descriptors left on rank 1 later", transport,
               lambda t=transport: scarce(t, ["--late-files", 0], None, error=False, late=True))
        yield ("rank 1 has no memory at start (RLIMIT_AS)", transport,
               lambda t=transport: scarce(t, ["--memory", 100000], r"memory|thread|rank 1"))
        # Blocks of the simulated device need stacks, and how many run at a time is chance.
        may = None if transport == "device" else False
        yield ("no memory left on rank 1 later (RLIMIT_AS)", transport,
               lambda t=transport, e=may: scarce(t, ["--late-memory", 65536], "memory|rank 1",
                                                 error=e, late=True))
        yield ("rank 1 killed by the kernel for memory (cgroup)", transport,
               lambda t=transport: memory_cgroup(t))
        yield "disks are full", transport, lambda t=transport: full_disk(t)
        for call, names in denied:
            if transport != "shm" and call in ("memfd_create", "ftruncate"):
                continue
            yield (f"{call} fails on rank 1", transport,
                   lambda t=transport, c=call, n=names: scarce(t, ["--deny", c], n + "|rank 1"))


def clock_cases(transports=ALL):
    """The time of day."""
    for transport in transports:
        for seconds, way in ((3600, "ahead"), (-3600, "back")):
            yield (f"clocks jump an hour {way}", transport,
                   lambda t=transport, s=seconds: clock_jumps(t, s, False))
        yield ("clocks jump an hour back, and rank 1 is stopped", transport,
               lambda t=transport: clock_jumps(t, -3600, True))


def rdma_cases():
    """Those that run where there are RDMA devices: in the machine of tests/rdma/vm.py. Not the ones
    that go by how quickly ranks meet, or that want mounts or cgroups."""
    slow = re.compile("never comes|in init|before its destroy|idle|0 killed, the|stopped, the|"
                      "cgroup|disks| later|memfd|ftruncate|eventfd")
    return [case for case in [*signal_cases(["rdma"]), *call_cases(["rdma"]),
                              *scarcity_cases(["rdma"]), *clock_cases(["rdma"])]
            if not slow.search(case[0])]


def cases():
    """All of them."""
    return [*signal_cases(), *call_cases(), *settings_cases(), *scarcity_cases(), *clock_cases(),
            *byte_cases()]
