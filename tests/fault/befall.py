"""What may befall a job, and one run of it: the engine of faults.py.

Ranks are processes (fault_rank), started by hand. A run records, for each survivor, the error it was
given and the time from the fault to it, and what is left behind: in the rank's process by its own
count, and outside (processes, segments, sockets, files) by looking.
"""
import os
import re
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
import job

TESTS = os.path.join(os.path.dirname(os.path.abspath(job.BIN)), "tests")
RANK = os.path.join(TESTS, "fault_rank")
CLOCK = os.path.join(TESTS, "fault_clock.so")
FLIP = os.path.join(TESTS, "fault_flip.so")
TIMEOUT, INIT_TIMEOUT = 3, 3
GRACE = 2.0  # seconds over a deadline: hearing the others out, and a busy machine
EVENT = re.compile(r"^(\d+\.\d+) (\w+) ?(.*)$")


def preload(library):
    """Variables that load it into a rank, also from a folder whose path has a space: the loader takes
    those for the end of a name in LD_PRELOAD, but not in LD_LIBRARY_PATH."""
    folders = [os.path.dirname(library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_PRELOAD": os.path.basename(library), "LD_LIBRARY_PATH": ":".join(folders)}


class Ranks:
    """A job of fault_rank processes."""

    def __init__(self, transport, size=3, flags=(), environment=None, of_rank=None, port=None,
                 wrap=None):
        self.transport, self.size = transport, size
        self.port = port or job.free_port()
        self.go = f"/tmp/tutti-fault-{os.getpid()}-{self.port}"
        self.before = job.things()
        common = {"TUTTI_TIMEOUT": str(TIMEOUT), "TUTTI_INIT_TIMEOUT": str(INIT_TIMEOUT),
                  "TUTTI_TUNING": "off", **(environment or {})}
        flags = [*flags, "--go", self.go]
        if transport == "device":
            common["TUTTI_DEVICE"] = "sim"
            flags += ["--device"]
        else:
            common.update({"TUTTI_TRANSPORT": transport, "TUTTI_DEVICE": "host"})
        if transport == "rdma":  # in the emulated machine of tests/rdma/vm.py, which is slow to meet
            common.update({"TUTTI_RDMA_DEVICES": "rxe0/rxe1", "TUTTI_INIT_TIMEOUT": "20"})
        self.jobs = {}
        job.awake()  # from here on standstills are seen
        for rank in range(size):
            more_flags, more = (of_rank or {}).get(rank, ((), {}))
            if more_flags is None:
                continue
            self.jobs[rank] = job.Job([*(wrap(rank) if wrap else []), RANK, *flags, *more_flags],
                                      {**job.by_hand(rank, size, self.port), **common, **more})

    def events(self, rank, name=None):
        """[(seconds, event, text)] of a rank, in its own clock, which is ours."""
        found = (EVENT.match(line) for line in list(self.jobs[rank].out))
        return [(float(m[1]), m[2], m[3]) for m in found if m and name in (None, m[2])]

    def until(self, rank, name, seconds=30):
        """Wait for an event; its time."""
        by = time.monotonic() + seconds
        while not self.events(rank, name):
            over = self.jobs[rank].process.poll() is not None
            for reader in self.jobs[rank].readers if over else ():
                reader.join(2)
            if not self.events(rank, name) and (over or time.monotonic() > by):
                raise job.Failure(f"rank {rank}: no \"{name}\": {self.events(rank)} "
                                  f"{self.jobs[rank].err[-3:]}")
            time.sleep(0.005)
        return self.events(rank, name)[0][0]

    def release(self):
        """Let ranks go on that wait at a pause, or end that work without end."""
        with open(self.go, "w", encoding="ascii"):
            pass

    def end(self):
        """Whatever happens."""
        for each in self.jobs.values():
            try:
                os.kill(each.process.pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
            each.end()
        if os.path.exists(self.go):
            os.unlink(self.go)


def connections():
    """TCP sockets of this network namespace that are neither gone nor on their way out."""
    found = []
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{name}", encoding="ascii") as file:
                for line in list(file)[1:]:
                    words = line.split()
                    if words[3] in ("01", "0A", "08"):  # established, listening, half closed
                        found.append((words[9], f"{name} {words[1]}"))
        except OSError:
            pass
    ours = job.may_be_ours()
    return {text for inode, text in found if ours(inode)}


def left_outside(ranks, tcp_before=frozenset()):
    """Processes, segments, sockets and files that are still there a moment after the end."""
    by = job.awake() + 1.5
    while True:
        left = {f"process {pid}" for each in ranks.jobs.values() for pid in job.marked(each.mark)}
        left |= job.things() - ranks.before
        left |= connections() - tcp_before
        if ranks.go in left:
            left.remove(ranks.go)
        if not left or job.awake() > by:
            return sorted(left)[:12]
        time.sleep(0.02)


def took(at, when):
    """Seconds from one moment to another in which this machine ran."""
    return round(when - at - job.STANDSTILLS.between(at, when), 3)


def survivors_of(ranks, victim, at, limit):
    """Wait for the end of all but the victim; a record for each."""
    records = []
    for rank, each in ranks.jobs.items():
        if rank == victim:
            continue
        try:
            each.wait(max(0.1, at + limit + 8 - time.monotonic()))
        except job.Failure:
            records.append({"rank": rank, "seconds": None, "code": None, "text": "HANGS",
                            "left": []})
            continue
        for reader in each.readers:
            reader.join(1)
        errors = ranks.events(rank, "error")
        record = {"rank": rank, "seconds": None, "code": 0, "text": "", "left": [],
                  "pid": each.process.pid}
        if errors:
            when, _, text = errors[0]
            code, _, message = text.partition(" ")
            record.update(seconds=took(at, when), code=int(code),
                          text=message.partition(" ")[2])
        if len(errors) > 1:
            record["later"] = errors[1][2]
        for _, _, text in ranks.events(rank, "shrunk"):
            record["shrunk"] = text
        for when, _, text in ranks.events(rank, "destroyed"):
            record["destroyed"] = float(text)
            record["over"] = took(at, when)
        record["wrong_sums"] = bool(ranks.events(rank, "wrong"))
        record["left"] = [text for _, _, text in ranks.events(rank, "left")]
        if not ranks.events(rank, "clean") and not record["left"]:
            record["left"] = [f"ended with status {each.process.returncode}: {each.err[-2:]}"]
        records.append(record)
    return records


def wrong_sum(record):
    """What is said of a rank that saw one while all was well."""
    return f"rank {record['rank']} has a wrong sum without an error"


def verdict(row, limit, names=None, error=True):
    """What is wrong with a row; [] when nothing is. `names`: what every error must say; `error`:
    True (all must have one), False (nobody may), None (either)."""
    wrong = []
    for record in row["survivors"]:
        who = f"rank {record['rank']}"
        if record["text"] == "HANGS":
            wrong.append(f"{who} hangs")
            continue
        if record.get("wrong_sums"):
            wrong.append(wrong_sum(record))
        if record["left"]:
            wrong.append(f"{who} leaves {record['left']}")
        if error is True and not record["code"]:
            wrong.append(f"{who} has no error")
        if error is False and record["code"]:
            wrong.append(f"{who} has an error: {record['text']}")
        if record["code"] and record["seconds"] is not None and record["seconds"] > limit:
            wrong.append(f"{who} was told after {record['seconds']} s")
        if record["code"] and names and not re.search(names, record["text"]):
            wrong.append(f"{who} is not told {names}: {record['text']}")
    if row["left"]:
        wrong.append(f"left behind: {', '.join(row['left'])}")
    return wrong


def end_victim(ranks, victim):
    """A victim that still lives: one that was stopped goes on, and must end too."""
    each = ranks.jobs.get(victim)
    if each is None:
        return
    ranks.release()
    try:
        os.kill(each.process.pid, signal.SIGCONT)
    except ProcessLookupError:
        pass
    try:
        each.wait(TIMEOUT + 10)
    except job.Failure:
        pass


def connect_quietly(address, data=b"", family=socket.AF_INET, kind=socket.SOCK_STREAM):
    """A stranger's connection; None if it is refused."""
    sock = socket.socket(family, kind)
    sock.settimeout(2)
    try:
        sock.connect(address)
        if data:
            sock.sendall(data)
    except OSError:
        sock.close()
        return None
    return sock


def listening():
    """Ports of this network namespace that are listened on (IPv4, IPv6)."""
    found = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with open(f"/proc/net/{name}", encoding="ascii") as file:
            for line in list(file)[1:]:
                words = line.split()
                if words[3] == "0A":
                    found.append((family, int(words[1].rpartition(":")[2], 16)))
    return found
