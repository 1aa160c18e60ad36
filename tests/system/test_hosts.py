#!/usr/bin/env python3
"""Several hosts on one machine: the namespaces of namespaces.py.

They need root and the right to make them; what needs neither (TUTTI_HOST_ID, which splits
one machine's ranks into hosts by name) comes last.
"""
import os
import re
import shutil
import signal

import job
from namespaces import Hosts, ip, namespaces_work

SWEEP = ["-b", "8", "-e", "1M", "-f", "32", "-n", "5", "-w", "1"]
LIMIT = 40
CHILDREN = os.path.join(job.BIN, "..", "tests", "host_children")


def judge_head(first, count, ranks):
    """The table's head knows hosts and transports."""
    transports = "tcp" if ranks == 1 else "shm and tcp"
    head = f"{count * ranks} ranks (processes) on {count} hosts, transport {transports},"
    first.check(any(head in line for line in first.out), f"no \"{head}\"")


def algorithms():
    """Those of all-reduce, which a wrong name brings up."""
    with job.Job([job.BENCH, "--algo", "all_reduce=none"]) as running:
        running.wait(10)
        names = running.err[0].partition("there are: ")[2].split(", ") if running.err else []
        running.check("ring" in names and "hierarchical" in names, "no list of algorithms")
        return names


def on_hosts(hosts, ranks, ipv6, *flags):
    """One run on hosts made for it."""
    with Hosts(hosts, ipv6) as network:
        judge_head(network.run(ranks, *SWEEP, *flags, seconds=LIMIT), hosts, ranks)


def at_a_rate():
    """Lines that hold traffic up, and a library that was told so."""
    with Hosts(4, rate="1gbit") as network:
        network.run(1, *SWEEP, seconds=LIMIT, environment={"TUTTI_LINE_MBITS": "1000"})


def unlucky(misfortune):
    """Two hosts of two ranks, and in mid-sweep something happens to the second: every rank of the
    first ends in time, and names a rank of the other."""
    with Hosts(2) as network:
        jobs = [network.start(k, 2, "-b", "1K", "-e", "1M", "-f", "4", "-n", "20", "-N",
                              "10000", environment={"TUTTI_TIMEOUT": "8"},
                              launch=["--elastic"])  # a rank that fails does not end the other
                for k in range(2)]
        try:
            jobs[0].until(lambda: len(jobs[0].rows()) >= 4, LIMIT, "rows of the table")
            misfortune(network, jobs)
            for each in jobs:
                each.check(each.wait(16) != 0, "it ended well")
                each.gone()
            said = [line for line in jobs[0].err if re.match(r"\[[01]\] ", line)]
            for rank in range(2):
                jobs[0].check(any(line.startswith(f"[{rank}]") and re.search(r"rank [23] \(", line)
                                  for line in said), f"rank {rank} names no rank of the other host")
        finally:
            for each in jobs:
                each.end()


def cut(network, _):
    """The second host's cable is pulled."""
    ip("-n", network.switch, "link", "set", "port1", "down")


def crash(_, jobs):
    """The second host's launcher and ranks die without a word."""
    for pid in job.marked(jobs[1].mark):
        os.kill(pid, signal.SIGKILL)


class Named(Hosts):
    """Hosts with a second interface, by which the default route goes and nobody reaches the others.
    The first has a name, which is its loopback's to itself, as Debian has it."""

    def make(self):
        """Every namespace, wired and up."""
        super().make()
        ip("-n", self.switch, "link", "set", "bridge1", "down")
        self.address = "tutti-first"
        for k, name in enumerate(self.names):
            ip("-n", name, "address", "flush", "dev", "eth1")
            ip("-n", name, "address", "add", f"10.79.{k}.15/24", "dev", "eth1")
            ip("-n", name, "route", "add", "default", "dev", "eth1")
            os.makedirs(f"/etc/netns/{name}", exist_ok=True)
            with open(f"/etc/netns/{name}/hosts", "w", encoding="ascii") as file:
                file.write(f"127.0.0.1 localhost\n{'10.77.0' if k else '127.0.1'}.1 tutti-first\n")

    def __exit__(self, *_):
        super().__exit__()
        for name in self.names:
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)


def children():
    """What is made of a communicator meets where that did."""
    with Named(2, nics=2) as network:
        jobs = [network.start(k, 2, environment={"TUTTI_INIT_TIMEOUT": "10"}, program=CHILDREN)
                for k in range(2)]
        try:
            for each in jobs:
                each.succeed(LIMIT, tables=0)
                each.gone()
        finally:
            for each in jobs:
                each.end()


def by_host_id(names, *flags):
    """Ranks of this machine that say that they are on different hosts."""
    port = job.free_port()
    jobs = [job.Job([job.BENCH, *SWEEP, *flags],
                    {**job.by_hand(rank, len(names), port), "TUTTI_HOST_ID": name})
            for rank, name in enumerate(names)]
    try:
        for rank, each in enumerate(jobs):
            each.succeed(LIMIT, tables=int(rank == 0))
        hosts = len(set(names))
        jobs[0].check(any(f"{hosts} hosts" in line for line in jobs[0].out),
                      f"does not say that there are {hosts} hosts")
    finally:
        for each in jobs:
            each.end()


def cases():
    """(name, function)."""
    for ranks in (1, 2):
        for algorithm in algorithms():
            yield (f"2 hosts, {ranks} ranks each, {algorithm}",
                   lambda r=ranks, a=algorithm: on_hosts(2, r, False, "--algo", a))
        yield f"2 hosts, {ranks} ranks each, IPv6", lambda r=ranks: on_hosts(2, r, True)
        yield f"4 hosts, {ranks} ranks each", lambda r=ranks: on_hosts(4, r, False)
    yield "8 hosts", lambda: on_hosts(8, 1, False)
    yield "4 hosts at 1 Gbit/s", at_a_rate
    yield "2 hosts with a name and a way that leads nowhere", children
    yield "a cut cable", lambda: unlucky(cut)
    yield "a host that dies", lambda: unlucky(crash)
    yield ("4 hosts, 2 ranks each, hierarchical",
           lambda: on_hosts(4, 2, False, "--algo", "hierarchical"))


def machine_cases():
    """What needs no namespaces."""
    yield "host ids a a b b", lambda: by_host_id("aabb")
    yield "host ids a b a, hierarchical", lambda: by_host_id("aba", "--algo", "hierarchical")


def main():
    """Everything; without namespaces what needs none, and a loud word about the rest."""
    why = namespaces_work()

    def skip():
        raise job.Skip(why)

    if why:
        print(f"SKIPPED: no network namespaces here, so hosts are not tested: {why}")
    wired = ((name, skip if why else case) for name, case in cases())
    job.main([*wired, *machine_cases()], all_needed=True)


if __name__ == "__main__":
    main()
