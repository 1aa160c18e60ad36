#!/usr/bin/env python3
"""A rank dies by SIGKILL in mid-sweep: the others say who, at once, and nothing is left.

Three ranks, each killed in turn, over shm and tcp, started by hand (where every survivor's own end
is seen), by `allreduce_bench --ranks` and by tuttirun. Then the rest of what may befall a job: a
death at any moment (TUTTI_SEED=N repeats one), a stopped rank, the end of the launcher.
"""
import os
import random
import re
import signal
import time

import job

SIZE = 3
LIMIT = 5.0  # seconds that survivors may take
SWEEP = ["-b", "1K", "-e", "1M", "-f", "4", "-n", "20", "-w", "1", "-N", "10000"]


def named(victim, pid):
    """How an error names the dead rank."""
    return re.compile(rf"\w+ #\d+.*: rank {victim} \([^)]*:{pid}\)")


def kill(ranks, victim, running):
    """Kill a rank in mid-sweep; returns when, by job.awake()."""
    running.until(lambda: len(running.rows()) >= 8, 30, "rows of the table")
    os.kill(ranks[victim], signal.SIGKILL)
    return job.awake()


def clean(before, jobs):
    """Nothing is left of the jobs."""
    for each in jobs:
        each.gone()
    by = job.awake() + 1
    left = job.things() - before
    while left and job.awake() < by:  # what dies is invisible before its sockets are
        time.sleep(0.02)
        left = job.things() - before
    jobs[0].check(not left, f"left behind: {', '.join(sorted(left))}")


def started_by_hand(transport, victim):
    """Three processes without a launcher."""
    before = job.things()
    port = job.free_port()
    command = [job.BENCH, *SWEEP, "--transport", transport]
    jobs = [job.Job(command, job.by_hand(rank, SIZE, port)) for rank in range(SIZE)]
    try:
        pids = {rank: each.process.pid for rank, each in enumerate(jobs)}
        jobs[0].until(lambda: jobs[0].rows(), 30, "first row of the table")
        at = kill(pids, victim, jobs[0])
        for rank, each in enumerate(jobs):
            status = each.wait(max(0.1, at + LIMIT - job.awake()))
            if rank == victim:
                continue
            each.check(status > 0, f"rank {rank} ended with status {status}, not an error's")
            each.check(any(named(victim, pids[victim]).search(line) for line in each.err),
                       f"rank {rank} does not name rank {victim} (pid {pids[victim]})")
        clean(before, jobs)
    finally:
        for each in jobs:
            each.end()


def launched(launcher, transport, victim):
    """Under a launcher of ours, which must end, and fail, and say why."""
    before = job.things()
    command = [*launcher, *SWEEP, "--transport", transport]
    with job.Job(command) as running:
        running.until(lambda: len(running.ranks()) == SIZE, 30, "three ranks")
        pids = running.ranks()
        at = kill(pids, victim, running)
        status = running.wait(max(0.1, at + LIMIT - job.awake()))
        running.check(status == 128 + signal.SIGKILL, f"exit status {status}, not 128 + SIGKILL")
        says = [line for line in running.err if named(victim, pids[victim]).search(line)]
        running.check(len(says) >= SIZE - 1, f"not every survivor names rank {victim} "
                      f"(pid {pids[victim]})")
        running.check(any(re.search(rf"rank {victim}\b", line) for line in running.err[-3:]),
                      f"the last words are not about rank {victim}")
        clean(before, [running])


def at_any_moment():
    """Deaths while ranks start, meet, connect and work, of a printed seed."""
    seed = int(os.environ.get("TUTTI_SEED", time.time_ns() % 1000000))
    print(f"        TUTTI_SEED={seed}")
    chance = random.Random(seed)
    before = job.things()
    for _ in range(15):
        victim, transport = chance.randrange(SIZE), chance.choice(["shm", "tcp"])
        launcher, pause = chance.choice(list(LAUNCHERS.values())), chance.uniform(0, 0.1)
        with job.Job([*launcher, *SWEEP, "--transport", transport],
                     {"TUTTI_INIT_TIMEOUT": "3"}) as running:
            running.until(lambda r=running, v=victim: v in r.ranks(), 30, f"rank {victim}")
            time.sleep(pause)
            os.kill(running.ranks()[victim], signal.SIGKILL)
            status = running.wait(LIMIT)
            running.check(status == 128 + signal.SIGKILL, f"exit status {status}")
            running.check(re.search(rf"rank {victim}\b", running.err[-1]),
                          f"the last word is not about rank {victim}")
            clean(before, [running])


def stopped(transport):
    """A rank that stalls: the others give up at their deadline and name whom they wait for. That is
    the stalled one in an algorithm in which every rank hears from every other."""
    before = job.things()
    port = job.free_port()
    command = [job.BENCH, *SWEEP, "--transport", transport, "--algo", "one_shot"]
    jobs = [job.Job(command, {**job.by_hand(rank, SIZE, port), "TUTTI_TIMEOUT": "2"})
            for rank in range(SIZE)]
    victim = 1
    try:
        jobs[0].until(lambda: len(jobs[0].rows()) >= 8, 30, "rows of the table")
        os.kill(jobs[victim].process.pid, signal.SIGSTOP)
        for rank, each in enumerate(jobs):
            if rank != victim:
                status = each.wait(2 + LIMIT)
                each.check(status > 0, f"rank {rank} ended with status {status}")
        said = "\n".join(line for each in jobs for line in each.err)
        jobs[0].check(re.search(rf"within 2 s.*rank {victim} \([^)]*:{jobs[victim].process.pid}\)",
                                said), f"rank {victim} is not named: {said}")
        os.kill(jobs[victim].process.pid, signal.SIGCONT)
        jobs[victim].check(jobs[victim].wait(LIMIT) > 0, "it went on alone")
        clean(before, jobs)
    finally:
        for each in jobs:
            each.end()


def launcher_ends(launcher, number):
    """A signal to the launcher ends the job; SIGKILL too."""
    before = job.things()
    with job.Job([*launcher, *SWEEP]) as running:
        running.until(lambda: len(running.rows()) >= 8, 30, "rows of the table")
        os.kill(running.process.pid, number)
        status = running.wait(LIMIT)
        expected = -number if number == signal.SIGKILL else 128 + number
        running.check(status == expected, f"exit status {status}, not {expected}")
        clean(before, [running])


LAUNCHERS = {"ranks": [job.BENCH, "--ranks", SIZE],
             "tuttirun": [job.TUTTIRUN, "-n", SIZE, job.BENCH]}


def cases():
    """(name, function) of every combination."""
    for transport in ("shm", "tcp"):
        for victim in range(SIZE):
            yield (f"by hand, {transport}, rank {victim}",
                   lambda t=transport, v=victim: started_by_hand(t, v))
            for name, launcher in LAUNCHERS.items():
                yield (f"{name}, {transport}, rank {victim}",
                       lambda c=launcher, t=transport, v=victim: launched(c, t, v))
        yield f"a stopped rank, {transport}", lambda t=transport: stopped(t)
    for name, launcher in LAUNCHERS.items():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            yield (f"{signal.Signals(number).name} to {name}",
                   lambda c=launcher, n=number: launcher_ends(c, n))
    yield "at any moment", at_any_moment


if __name__ == "__main__":
    job.isolate()
    job.main(cases())
