#!/usr/bin/env python3
"""Several hosts on one machine: network namespaces, joined by a bridge, one tuttirun in each.

Needs root and the right to make network namespaces; what needs neither (TUTTI_HOST_ID, which splits
one machine's ranks into hosts by name) comes last.
"""
import os
import re
import signal
import subprocess
import time

import job

SWEEP = ["-b", "8", "-e", "1M", "-f", "32", "-n", "5", "-w", "1"]
LIMIT = 40
PORT = 29400


def ip(*words):
    """The ip command; its failure is ours."""
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise job.Failure(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")


class Hosts:
    """Namespaces 10.77.0.1.. (or fd77::1..) behind a bridge in a namespace of its own."""

    def __init__(self, count, ipv6=False):
        self.prefix = f"tutti{os.getpid()}"
        self.names = [f"{self.prefix}h{k}" for k in range(count)]
        self.switch = f"{self.prefix}s"
        self.address = "fd77::1" if ipv6 else "10.77.0.1"
        self.ipv6 = ipv6

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        """Every namespace, wired and up."""
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for k, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{k}",
               "netns", self.switch)
            ip("-n", self.switch, "link", "set", f"port{k}", "master", "bridge", "up")
            if self.ipv6:
                ip("-n", name, "address", "add", f"fd77::{k + 1}/64", "dev", "eth0", "nodad")
            else:
                ip("-n", name, "address", "add", f"10.77.0.{k + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "up")

    def __exit__(self, *_):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def start(self, k, name, ranks, *flags, environment=None):
        """Host k's tuttirun."""
        return job.Job(["ip", "netns", "exec", name, job.TUTTIRUN, "--nnodes", len(self.names),
                        "--node-rank", k, "-n", ranks, "--master-addr", self.address,
                        "--master-port", PORT, job.BENCH, *flags], environment)

    def run(self, ranks, *flags):
        """A job of `ranks` ranks a host; the first host prints the one table."""
        jobs = []
        try:
            for k, name in enumerate(self.names):
                jobs.append(self.start(k, name, ranks, *SWEEP, *flags))
            self.judge(jobs, ranks)
        except job.Failure as failure:
            raise job.Failure("\n".join([str(failure), *(
                f"  host {k}| {line}" for k, each in enumerate(jobs) for line in each.err[-10:])])
                              ) from None
        finally:
            for each in jobs:
                each.end()

    def judge(self, jobs, ranks):
        """Right data in one table, whose head knows hosts and transports; nothing left."""
        by = time.monotonic() + LIMIT
        for k, each in enumerate(jobs):
            each.succeed(max(0.1, by - time.monotonic()), tables=int(k == 0))
        for each in jobs:
            each.gone()
        count = len(self.names)
        transports = "tcp" if ranks == 1 else "shm and tcp"
        head = f"{count * ranks} ranks (processes) on {count} hosts, transport {transports},"
        jobs[0].check(any(head in line for line in jobs[0].out), f"no \"{head}\"")


def algorithms():
    """Those of all-reduce, which a wrong name brings up."""
    with job.Job([job.BENCH, "--algo", "all_reduce=none"]) as running:
        running.wait(10)
        names = running.err[0].partition("there are: ")[2].split(", ") if running.err else []
        running.check("ring" in names and "hierarchical" in names, "no list of algorithms")
        return names


def namespaces_work():
    """Whether this process may make network namespaces with veth pairs."""
    try:
        with Hosts(1):
            return ""
    except job.Failure as failure:
        return str(failure)
    except FileNotFoundError:
        return "there is no ip command (package iproute2)"


def on_hosts(hosts, ranks, ipv6, *flags):
    """One run on hosts made for it."""
    with Hosts(hosts, ipv6) as network:
        network.run(ranks, *flags)


def unlucky(misfortune):
    """Two hosts of two ranks, and in mid-sweep something happens to the second: every rank of the
    first ends in time, and names a rank of the other."""
    with Hosts(2) as network:
        jobs = [network.start(k, name, 2, "-b", "1K", "-e", "1M", "-f", "4", "-n", "20", "-N",
                              "10000", environment={"TUTTI_TIMEOUT": "2"})
                for k, name in enumerate(network.names)]
        try:
            jobs[0].until(lambda: len(jobs[0].rows()) >= 4, 30, "rows of the table")
            misfortune(network, jobs)
            for each in jobs:
                each.check(each.wait(10) != 0, "it ended well")
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
