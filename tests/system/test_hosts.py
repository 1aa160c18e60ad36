#!/usr/bin/env python3
"""Several hosts on one machine: network namespaces, joined by a bridge, one tuttirun in each.

Needs root and the right to make network namespaces; what needs neither (TUTTI_HOST_ID, which splits
one machine's ranks into hosts by name) comes last.
"""
import os
import subprocess
import sys
import time

import job

SWEEP = ["-b", "8", "-e", "1M", "-f", "32", "-n", "5", "-w", "1"]
LIMIT = 40
PORT = 29400
ALGORITHMS = ["ring", "tree", "recursive_doubling", "rabenseifner", "one_shot", "two_shot",
              "hierarchical"]


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

    def run(self, ranks, *flags):
        """A job of `ranks` ranks a host; the first host prints the one table."""
        jobs = []
        try:
            for k, name in enumerate(self.names):
                jobs.append(job.Job(
                    ["ip", "netns", "exec", name, job.TUTTIRUN, "--nnodes", len(self.names),
                     "--node-rank", k, "-n", ranks, "--master-addr", self.address,
                     "--master-port", PORT, job.BENCH, *SWEEP, *flags]))
            by = time.monotonic() + LIMIT
            for k, each in enumerate(jobs):
                each.succeed(max(0.1, by - time.monotonic()), tables=int(k == 0))
            for each in jobs:
                each.gone()
        except job.Failure as failure:
            raise job.Failure("\n".join([str(failure), *(
                f"  host {k}| {line}" for k, each in enumerate(jobs) for line in each.err[-10:])])
                              ) from None
        finally:
            for each in jobs:
                each.end()


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
        for algorithm in ALGORITHMS:
            yield (f"2 hosts, {ranks} ranks each, {algorithm}",
                   lambda r=ranks, a=algorithm: on_hosts(2, r, False, "--algo", a))
        yield f"2 hosts, {ranks} ranks each, IPv6", lambda r=ranks: on_hosts(2, r, True)
        yield f"4 hosts, {ranks} ranks each", lambda r=ranks: on_hosts(4, r, False)
    yield ("4 hosts, 2 ranks each, hierarchical",
           lambda: on_hosts(4, 2, False, "--algo", "hierarchical"))


def machine_cases():
    """What needs no namespaces."""
    yield "host ids a a b b", lambda: by_host_id("aabb")
    yield "host ids a b a, hierarchical", lambda: by_host_id("aba", "--algo", "hierarchical")


if __name__ == "__main__":
    everything = list(machine_cases())
    if "host ids" not in sys.argv[1:]:
        why = namespaces_work()
        if why:
            print(f"SKIPPED: no network namespaces here: {why}")
            sys.exit(job.SKIPPED)
        everything = [*cases(), *everything]
    job.main(everything)
