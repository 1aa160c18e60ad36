#!/usr/bin/env python3
"""An id of ncclGetUniqueId may be made on any host, by any process: network namespaces as hosts.

    test_nccl_hosts.py NCCL_FAR      (needs root and the right to make namespaces)"""
import os
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv.pop(1)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
import job # noqa: E402
from namespaces import Hosts, namespaces_work # noqa: E402

LIMIT = 60
ID_TEXT = 124  # of the 128 bytes


class Meeting:
    """Hosts, a file for the id, and programs on the hosts."""

    def __init__(self, count, ipv6=False):
        self.hosts = Hosts(count, ipv6)
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "id")
        self.jobs = []

    def __enter__(self):
        self.hosts.__enter__()
        return self

    def __exit__(self, *_):
        for each in self.jobs:
            each.end()
        self.hosts.__exit__()
        self.folder.cleanup()

    def start(self, host, *words, **environment):
        """The program on a host."""
        environment = {"TUTTI_LOG": "info", "TUTTI_TIMEOUT": "60", "TUTTI_INIT_TIMEOUT": "60",
                       "TUTTI_DEVICE": "host", **environment}
        self.jobs.append(job.Job(self.hosts.inside(host, PROGRAM, *words), environment))
        return self.jobs[-1]

    def maker(self, host):
        """A process that makes the id and is no rank."""
        made = self.start(host, "make", self.path)
        made.until(lambda: "made" in made.out, LIMIT, "id")
        return made

    def rank(self, host, rank, ranks, path=None, what="rank", **environment):
        """A rank that has begun."""
        made = self.start(host, what, rank, ranks, path or self.path, **environment)
        made.until(lambda: "begins" in made.out, LIMIT, "begin")
        return made

    def text(self):
        """The id as text: tutti1:SECRET:PORT,DESK:HOST."""
        with open(self.path, "rb") as file:
            return file.read()[:ID_TEXT].split(b"\0")[0].decode()

    def right(self, *ranks):
        """All have come to their good end."""
        for each in ranks:
            each.check(each.wait(LIMIT) == 0 and "right" in each.out, "not right")


def waits_at_the_desk(meeting, rank):
    """The rank has a connection to the id's desk: it found nobody, and waits to be told."""
    port = int(meeting.text().split(":")[2].split(",")[1])

    def there():
        with open(f"/proc/{rank.process.pid}/net/tcp", encoding="ascii") as file:
            return any(line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01"
                       for line in file.readlines()[1:])
    rank.until(there, LIMIT, "connection to the desk")


def far_maker(ipv6):
    """Rank 0 and two more on hosts that are not the maker's, and a fourth with the maker. Rank 0
    comes last."""
    with Meeting(3, ipv6) as meeting:
        meeting.maker(0)
        others = [meeting.rank(1, 1, 4), meeting.rank(2, 2, 4), meeting.rank(0, 3, 4)]
        if not ipv6:
            waits_at_the_desk(meeting, others[0])
        meeting.right(meeting.rank(1, 0, 4), *others)


def maker_is_rank_1():
    """As NCCL allows: any rank may make the id."""
    with Meeting(2) as meeting:
        maker = meeting.rank(0, 1, 2, what="both")
        meeting.right(meeting.rank(1, 0, 2), maker)


def own_interface():
    """Rank 0's host has the address that TUTTI_IFNAME names."""
    with Meeting(2) as meeting:
        meeting.maker(0)
        ranks = [meeting.rank(0, 1, 2), meeting.rank(1, 0, 2, TUTTI_IFNAME="eth0")]
        meeting.right(*ranks)
        ranks[1].check(any("waits at 10.77.0.2:" in line for line in ranks[1].err), "another address")


def makers_host():
    """Rank 0 in another process of the maker's host: no detour. The waiting are told at once, whether or
    not the maker runs."""
    for stops in (False, True):
        with Meeting(2) as meeting:
            maker = meeting.maker(0)
            if stops:
                os.kill(maker.process.pid, signal.SIGSTOP)
            other = meeting.rank(1, 1, 2)
            if not stops:
                waits_at_the_desk(meeting, other)
            zero = meeting.rank(0, 0, 2)
            meeting.right(zero, other)
            port = meeting.text().split(":")[2].split(",")[0]
            zero.check(any(f"waits at 10.77.0.1:{port}" in line for line in zero.err),
                       "not at the id's port")
            if stops:
                os.kill(maker.process.pid, signal.SIGCONT)


def maker_gone():
    """On the id's host rank 0 needs no maker."""
    with Meeting(2) as meeting:
        maker = meeting.maker(0)
        maker.end()
        other = meeting.rank(1, 1, 2)
        meeting.right(meeting.rank(0, 0, 2), other)


def fails(rank, *texts):
    """It ends with an error, which says this."""
    rank.check(rank.wait(LIMIT) != 0, "it did not fail")
    for text in texts:
        rank.check(any(text in line for line in rank.err), f"no \"{text}\"")


def second_rank_0():
    """Only the first one may tell where it is."""
    with Meeting(3) as meeting:
        meeting.maker(0)
        zero = meeting.rank(1, 0, 2)
        zero.until(lambda: any("waits at" in line for line in zero.err), LIMIT, "server")
        fails(meeting.rank(2, 0, 2), "is there a second rank 0?")
        fails(meeting.rank(0, 0, 2), "is there a second rank 0?")
        meeting.right(meeting.rank(2, 1, 2), zero)


def again():
    """An id serves again, with rank 0 elsewhere: after a meeting, after one that failed because it had
    little time, and after one whose rank 0 died."""
    with Meeting(3) as meeting:
        meeting.maker(0)
        for host in (1, 2, 0):
            meeting.right(meeting.rank(host, 0, 2), meeting.rank(1, 1, 2))
        fails(meeting.rank(1, 0, 2, TUTTI_INIT_TIMEOUT="3"), "rank 1 of 2")
        time.sleep(3.5)  # the id stays, as the others had more time than that
        dies = meeting.rank(1, 0, 2)
        dies.until(lambda: any("waits at" in line for line in dies.err), LIMIT, "server")
        dies.end()
        meeting.right(meeting.rank(2, 1, 2), meeting.rank(1, 0, 2))


def nobody():
    """Rank 0 does not come, or its maker is dead: said so, in time."""
    with Meeting(2) as meeting:
        maker = meeting.maker(0)
        fails(meeting.rank(1, 1, 2, TUTTI_INIT_TIMEOUT="3"),
              "nor has the process that made the id heard of it")
        maker.end()
        fails(meeting.rank(1, 1, 2, TUTTI_INIT_TIMEOUT="3"), "did not reach rank 0 at 10.77.0.1:",
              "see that rank 0 runs")
        fails(meeting.rank(1, 0, 2, TUTTI_INIT_TIMEOUT="3"), "rank 1 of 2 has not joined",
              "nobody answered for the id at 10.77.0.1:")


def strangers():
    """Noise at the desk, and ranks with another secret, harm nobody."""
    with Meeting(2) as meeting:
        meeting.maker(0)
        text = meeting.text()
        other = meeting.rank(1, 1, 2)
        waits_at_the_desk(meeting, other)
        desk = text.split(":")[2].split(",")[1]
        noise = (f"for i in $(seq 20); do exec 3<>/dev/tcp/10.77.0.1/{desk}; "
                 "head -c $((i * 50)) /dev/urandom >&3; done 2>/dev/null; true")
        subprocess.run(meeting.hosts.inside(1, "bash", "-c", noise), check=True, timeout=LIMIT)
        wrong = os.path.join(meeting.folder.name, "wrong")
        digit = "1" if text[7] == "0" else "0"
        with open(wrong, "wb") as file:
            file.write((text[:7] + digit + text[8:]).encode().ljust(128, b"\0"))
        fails(meeting.rank(1, 0, 2, wrong, TUTTI_INIT_TIMEOUT="3"), "has another secret")
        meeting.right(meeting.rank(1, 0, 2), other)


def main():
    """All cases."""
    why = namespaces_work()
    if why:
        print(f"SKIPPED: no network namespaces here, so ids of other hosts are not tested: {why}")
        sys.exit(job.SKIPPED)
    job.main([
        ("the maker is no rank, rank 0 elsewhere", lambda: far_maker(False)),
        ("the same with IPv6", lambda: far_maker(True)),
        ("the maker is rank 1, rank 0 elsewhere", maker_is_rank_1),
        ("rank 0 has an interface to go by", own_interface),
        ("rank 0 with the maker, which runs or stands still", makers_host),
        ("rank 0 with the maker, which is gone", maker_gone),
        ("two ranks 0", second_rank_0),
        ("the id is used again", again),
        ("nobody comes", nobody),
        ("strangers", strangers)], all_needed=True)


main()
