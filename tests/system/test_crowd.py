#!/usr/bin/env python3
"""More ranks than cores: eight and more ranks on two cores finish a sweep in a sane time, and idle
ranks sleep."""
import os
import time

import job

LIMIT = 200


def crowd(ranks, *flags):
    """A sweep of many ranks on two cores."""
    def case():
        cores = sorted(os.sched_getaffinity(0))[:2]
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores)
        try:
            with job.Job([job.BENCH, "--ranks", ranks, "-b", "8", "-e", "1M", "-f", "4", "-n", "20",
                          *flags]) as running:
                running.succeed(LIMIT)
                print(f"        {ranks} ranks on {len(cores)} cores, 8 B to 1 MiB: "
                      f"{time.monotonic() - running.begun:.1f} s")
                running.gone()
        finally:
            os.sched_setaffinity(0, before)
    return case


def dealt(collective, algorithm):
    """Five ranks bound to two cores in turn: orders go core by core, and results are right."""
    def case():
        cores = sorted(os.sched_getaffinity(0))[:2]
        if len(cores) < 2:
            raise job.Skip("one core")
        job.need("taskset")
        bound = f"exec taskset -c $((LOCAL_RANK % 2 ? {cores[1]} : {cores[0]})) \"$@\""
        with job.Job([job.TUTTIRUN, "--bind", "none", "-n", "5", "sh", "-c", bound, "bound", job.BENCH,
                      "--coll", collective, "--algo", algorithm, "--memory", "malloc", "-b", "100",
                      "-e", "1M", "-f", "9", "-n", "2", "-w", "1", "-c", "3"],
                     {"TUTTI_LOG": "debug"}) as running:
            running.succeed(LIMIT)
            running.check(any(", 2 shared cores" in line for line in running.err),
                          "ranks that share cores are not known")
    return case


def processor_seconds(pid):
    """User and system time of a process."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle():
    """A rank whose peer is stopped waits without burning its core."""
    port = job.free_port()
    jobs = [job.Job([job.BENCH, "-b", "64K", "-e", "64K", "-N", "100000", "-T", "30"],
                    job.by_hand(rank, 2, port)) for rank in range(2)]
    try:
        jobs[0].until(jobs[0].rows, LIMIT, "row of the table")
        os.kill(jobs[1].process.pid, 19)
        time.sleep(0.5)
        begin = processor_seconds(jobs[0].process.pid)
        time.sleep(2)
        burnt = processor_seconds(jobs[0].process.pid) - begin
        jobs[0].check(jobs[0].process.poll() is None, "ended while its peer was stopped")
        jobs[0].check(burnt < 0.4, f"{burnt:.2f} s of processor time in 2 s of waiting")
    finally:
        for each in jobs:
            each.end()


if __name__ == "__main__":
    job.main([("shm", crowd(8)), ("tcp", crowd(8, "--transport", "tcp")),
              ("threads", crowd(8, "--threads")), ("shm, 32 ranks", crowd(32)),
              ("a stopped peer", idle), ("dealt out, chain", dealt("broadcast", "chain")),
              ("dealt out, tree", dealt("reduce", "tree")),
              ("dealt out, ring", dealt("all_reduce", "ring"))])
