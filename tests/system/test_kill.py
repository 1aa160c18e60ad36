#!/usr/bin/env python3
"""A rank dies by SIGKILL in the middle of a sweep: the others say who, at once, and nothing is left.

Three ranks, each killed in turn, over shm and tcp, started by hand (where every survivor's own end
is seen), by `allreduce_bench --ranks` and by tuttirun.
"""
import os
import re
import signal
import time

import job

SIZE = 3
LIMIT = 5.0  # seconds that survivors may take
SWEEP = ["-b", "1K", "-e", "1M", "-f", "4", "-n", "20", "-w", "1", "-N", "10000"]


def named(victim, pid):
    """How an error names the dead rank."""
    return re.compile(rf"rank {victim} \([^)]*:{pid}\)")


def kill(ranks, victim, running):
    """Kill a rank in mid-sweep; returns the time."""
    running.until(lambda: len(running.rows()) >= 8, 30, "rows of the table")
    os.kill(ranks[victim], signal.SIGKILL)
    return time.monotonic()


def clean(before, jobs):
    """Nothing is left of the jobs."""
    for each in jobs:
        each.gone()
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
            status = each.wait(max(0.1, at + LIMIT - time.monotonic()))
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
        status = running.wait(max(0.1, at + LIMIT - time.monotonic()))
        running.check(status == 128 + signal.SIGKILL, f"exit status {status}, not 128 + SIGKILL")
        says = [line for line in running.err if named(victim, pids[victim]).search(line)]
        running.check(len(says) >= SIZE - 1, f"not every survivor names rank {victim} "
                      f"(pid {pids[victim]})")
        running.check(any(re.search(rf"rank {victim}\b", line) for line in running.err[-3:]),
                      f"the last words are not about rank {victim}")
        clean(before, [running])


def cases():
    """(name, function) of every combination."""
    launchers = {"ranks": [job.BENCH, "--ranks", SIZE],
                 "tuttirun": [job.TUTTIRUN, "-n", SIZE, job.BENCH]}
    for transport in ("shm", "tcp"):
        for victim in range(SIZE):
            yield (f"by hand, {transport}, rank {victim}",
                   lambda t=transport, v=victim: started_by_hand(t, v))
            for name, launcher in launchers.items():
                yield (f"{name}, {transport}, rank {victim}",
                       lambda c=launcher, t=transport, v=victim: launched(c, t, v))


if __name__ == "__main__":
    job.isolate()
    job.main(cases())
