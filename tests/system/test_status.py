"""tutti-status and tutti-dump on running, stopped, hung and killed jobs of real processes."""
import json
import os
import re
import signal
import subprocess
import tempfile

import job

STATUS = os.path.join(job.BIN, "tutti-status")
DUMP = os.path.join(job.BIN, "tutti-dump")
SIZE = 3
LIMIT = 100
SWEEP = [job.BENCH, "-b", "64K", "-e", "64K", "-n", "2000000", "-w", "10", "-c", "0"]


def tell(*flags, program=STATUS):
    """Output and exit status of one of the tools."""
    done = subprocess.run([program, *flags], capture_output=True, text=True, timeout=LIMIT,
                          check=False)
    return done.stdout + done.stderr, done.returncode


def start(**environment):
    """A job that runs for long, and is at work: its pids by rank."""
    running = job.Job([job.TUTTIRUN, "-n", SIZE, *SWEEP], environment)
    running.until(lambda: len(running.ranks()) == SIZE, LIMIT, f"{SIZE} ranks")
    pid = str(next(iter(running.ranks().values())))
    running.until(lambda: tell("--json", "--job", pid)[0].count('"all_reduce"') > SIZE, LIMIT,
                  "operations of all ranks")
    return running, running.ranks()


def shown():
    """A job at work: every rank, its rates; a dump of all of it, read back."""
    running, pids = start()
    with running, tempfile.TemporaryDirectory() as folder:
        text, status = tell("--once", "--job", str(pids[0]))
        running.check(status == 0 and "communicator" in text, text)
        for pid in pids.values():
            running.check(f" {pid} " in text, f"pid {pid} is not in {text}")
        running.check("all_reduce #" in text, text)
        dumps = json.loads(tell("--json", "--job", str(pids[0]))[0])
        running.check(sorted(each["rank"] for each in dumps) == list(range(SIZE)), str(dumps))
        running.check(all(each["operations"] for each in dumps), str(dumps))
        listed, status = tell("--list")
        running.check(status == 0 and "3 ranks, 1 communicator" in listed, listed)
        text, status = tell("--dump", os.path.join(folder, "now.%r"), "--job", str(pids[0]))
        running.check(status == 0 and f"{SIZE} recorders" in text, text)
        files = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        trace = os.path.join(folder, "trace.json")
        text, status = tell("--trace", trace, *files, program=DUMP)
        running.check("3 ranks of allreduce_bench" in text and status in (0, 1), text)
        with open(trace, encoding="ascii") as file:
            events = json.load(file)["traceEvents"]
        running.check(len([e for e in events if e["ph"] == "X"]) > SIZE, str(events)[:300])


def two_jobs():
    """Dumps of two jobs never lie in the same file."""
    running, _ = start()
    other, _ = start()
    with running, other, tempfile.TemporaryDirectory() as folder:
        text, status = tell("--dump", os.path.join(folder, "now.%r"))
        running.check(status == 2 and "%c" in text and "--job" in text, text)
        running.check(not os.listdir(folder), str(os.listdir(folder)))
        text, status = tell("--dump", os.path.join(folder, "now.%c.%r"))
        running.check(status == 0, text)
        running.check(len(os.listdir(folder)) >= 2 * SIZE, str(os.listdir(folder)))


def stopped():
    """A stopped rank is seen, though its process cannot answer; the others wait for it."""
    running, pids = start()
    with running:
        os.kill(pids[1], signal.SIGSTOP)
        texts = []

        def seen():
            texts.append(tell("--once", "--job", str(pids[0]))[0])
            return "rank 1 (" in texts[-1] and "is stopped, by a signal" in texts[-1]
        running.until(seen, LIMIT, "word of the stopped rank")
        running.check("STOPPED" in texts[-1], texts[-1])
        os.kill(pids[1], signal.SIGCONT)


def failure():
    """A stopped rank and a deadline: the dumps of the others say who it was."""
    with tempfile.TemporaryDirectory() as folder:
        running, pids = start(TUTTI_TIMEOUT="8", TUTTI_DUMP=os.path.join(folder, "dump.%r"))
        with running:
            os.kill(pids[1], signal.SIGSTOP)
            running.check(running.wait(LIMIT) > 0, "it went on")
            running.check(any("rank 1 (" in line and "is stopped" in line
                              for line in running.err), "the stopped rank is not named")
            files = [os.path.join(folder, name) for name in os.listdir(folder)]
            text, status = tell(*files, program=DUMP)
            running.check(status == 1 and re.search(r"WRONG: rank 1 \(\S+\) is stopped", text), text)


def killed():
    """Nothing is left of a job that was killed."""
    running, pids = start()
    with running:
        for pid in pids.values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # the launcher was faster, after the first
                pass
        running.wait(LIMIT)
        text, status = tell("--once", "--job", str(pids[0]))
        running.check(status == 1 and "no such job" in text, text)
        text, status = tell("--job", str(pids[0]))
        running.check(status == 1 and "--list shows" in text, text)


def watched():
    """Watching a job ends when the job does."""
    running, pids = start()
    with running:
        watch = subprocess.Popen([STATUS, "--job", str(pids[0]), "-i", "0.1"], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        first = watch.stdout.readline()
        for pid in pids.values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        text = watch.communicate(timeout=LIMIT)[0]
        running.check("communicator" in first, first)
        running.check(watch.returncode == 0 and "has ended" in text, text[-500:])


def wrong():
    """Wrong command lines and files that are no dumps."""
    for flags, words in (["--nonsense"], "--help"), (["-i", "0"], "interval"), (["x"], "x is no flag"):
        text, status = tell(*flags)
        if status != 2 or words not in text:
            raise job.Failure(f"tutti-status {flags}: {status}, {text}")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write('{"format": "tutti-dump",\n "version": 2}')
        file.flush()
        for flags, words in ([], "give the dumps"), (["/nowhere"], "/nowhere"), \
                (["-l", "few", file.name], '--last is "few"'), \
                ([file.name], "line 2 of a dump"):
            text, status = tell(*flags, program=DUMP)
            if status != 2 or words not in text:
                raise job.Failure(f"tutti-dump {flags}: {status}, {text}")


if __name__ == "__main__":
    job.main([("a job at work", shown), ("two jobs", two_jobs), ("a stopped rank", stopped),
              ("dumps on failure", failure), ("a killed job", killed),
              ("a job that ends while it is watched", watched),
              ("wrong command lines", wrong)])
