#!/usr/bin/env python3
"""Which NIC carries a rank's bytes: two hosts of two ranks, joined by two networks, and a made-up
topology that puts each network's interface near one rank. The kernel's counters tell.

Needs root and the right to make network namespaces, as test_hosts.py.
"""
import re
import subprocess
import time

import job
from namespaces import File, Hosts, description, ip, namespaces_work

# Between the hosts there are the pairs 0-2 and 1-3 alone, each with half of it.
SIZE = ["-b", "4M", "-e", "4M", "-n", "10", "-w", "1"]
SWEEP = ["--algo", "hierarchical", *SIZE]
LIMIT = 60
MUCH, LITTLE = 10 << 20, 2 << 20  # bytes of a network that was meant to carry, and of one not


class Rails(Hosts):
    """Two hosts with an interface in each of two networks, which no router joins."""

    def __init__(self, wiring="both"):
        """wiring: "elsewhere": the second host's second address is in no network of the first host's;
        "routed": addresses are networks of their own, and only the first interfaces have a route to
        each other; "bare": the second interfaces have no address that others could use."""
        super().__init__(2)
        self.address = "10.78.0.1"
        self.wiring = wiring

    def number(self, name, host, k):
        """An interface's address."""
        net = 9 if self.wiring == "elsewhere" and k and host else k
        bits = 32 if self.wiring == "routed" else 24
        if k == 0 or self.wiring != "bare":
            ip("-n", name, "address", "add", f"10.78.{net}.{host + 1}/{bits}", "dev", f"net{k}")

    def make(self):
        """Every namespace, wired and up."""
        for name in [*self.names, self.switch]:
            ip("netns", "add", name)
        for k in range(2):
            ip("link", "add", f"net{k}", "netns", self.names[0], "type", "veth", "peer", "name",
               f"net{k}", "netns", self.names[1])
            for h, name in enumerate(self.names):
                self.number(name, h, k)
        for h, name in enumerate(self.names):
            for device in ("lo", "net0", "net1"):
                ip("-n", name, "link", "set", device, "up")
            if self.wiring == "routed":
                ip("-n", name, "route", "add", f"10.78.0.{2 - h}/32", "dev", "net0")
        by = job.awake() + LIMIT
        while any(self.reads(h, k, "operstate") != "up" for h in range(2) for k in range(2)):
            if job.awake() > by:
                raise job.Failure("an interface does not come up")
            time.sleep(0.05)

    def reads(self, host, k, file):
        """What the kernel says of an interface."""
        done = subprocess.run(self.inside(host, "cat", f"/sys/class/net/net{k}/{file}"),
                              capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def sent(self):
        """Bytes that host 0 has sent by net0 and by net1."""
        return [int(self.reads(0, k, "statistics/tx_bytes")) for k in range(2)]


def carried(wanted, said, gpus=True, settings=None, wiring="both", launch=(), device="sim",
            names=("net0", "net1"), also="", packages=2, sweep=SWEEP, alike=False):
    """A job in which of (net0, net1) those are busy that `wanted` says, both as much if `alike`, and a
    rank says `said` of its choice; one says `also`."""
    with File(description(gpus, names, packages)) as path, Rails(wiring) as network:
        environment = {"TUTTI_TOPOLOGY": path, "TUTTI_DEVICE": device, "TUTTI_SIM_DEVICES": "2",
                       "TUTTI_LOG": "info", **(settings or {})}
        before = network.sent()
        jobs = [network.start(k, 2, *sweep, environment=environment, launch=launch)
                for k in range(2)]
        try:
            network.judge(jobs, LIMIT)
            counts = [now - then for now, then in zip(network.sent(), before)]
            print(f"        host 0 sent {counts[0]} bytes by net0, {counts[1]} by net1")
            for k, busy in enumerate(wanted):
                jobs[0].check(counts[k] > MUCH if busy else counts[k] < LITTLE,
                              f"net{k} carried {counts[k]} bytes")
            jobs[0].check(not alike or min(counts) > 0.9 * max(counts), "one carried more")
            lines = [line for line in jobs[0].err if "this rank goes by" in line]
            for line in lines:
                print(f"        {line}")
            jobs[0].check(any(re.search(said, line) for line in lines) if said else not lines,
                          f"nobody says \"{said}\"" if said else "somebody chose")
            jobs[0].check(any(re.search(also, line) for line in jobs[0].err),
                          f"nobody says \"{also}\"")
        finally:
            for each in jobs:
                each.end()


def refused(settings, *patterns):
    """A setting that cannot be right ends the job, with a line that says why."""
    with job.Job([job.BENCH, "-b", "8", "-e", "8", "--ranks", "2"], settings) as running:
        status = running.wait(LIMIT)
        running.check(0 < status < 128, f"exit status {status}")
        text = "\n".join(running.err)
        for pattern in patterns:
            running.check(re.search(pattern, text), f"no word of \"{pattern}\"")
        print(f"        {running.err[-1]}")


def cases():
    """(name, function)."""
    yield ("each rank by the NIC near its GPU",
           lambda: carried((True, True), r"goes by nic net1 \(same NUMA node as gpu 1\)"))
    yield ("by the other one, where the description says so",
           lambda: carried((True, True), r"goes by nic net1 \(same NUMA node as gpu 0\)",
                           names=("net1", "net0")))
    yield ("each rank by the NIC near its core",
           lambda: carried((True, True), r"goes by nic net1 \(same NUMA node as the cores",
                           gpus=False, device="host", launch=["--bind", "core"]))
    shared = r"goes by nic net1 \(same NUMA node as %s; its rail of those that several ranks"
    yield ("NICs equally near to two GPUs, one each",
           lambda: carried((True, True), shared % "gpu 1", packages=1))
    yield ("ranks that may run anywhere, one each",
           lambda: carried((True, True), shared % "the cores that this rank may run on", gpus=False,
                           device="host"))
    yield ("ranks of a package's cores, one each",
           lambda: carried((True, True), shared % "the cores that this rank may run on", gpus=False,
                           device="host", launch=["--bind", "core"], packages=1))
    # In one order for all lanes rank 1 alone would send to the other host, and on rank 2's network.
    lanes = "goes by nic net1", r"ranks leave their host by up to 2 NICs"
    for coll, algorithm, root in (("broadcast", "chain", "0"), ("broadcast", "chain", "1"),
                                  ("reduce", "chain", "2"), ("all_reduce", "ring", "0"),
                                  ("all_gather", "ring", "0"), ("reduce_scatter", "ring", "0")):
        flags = ["--coll", coll, "--algo", algorithm, "-r", root, *SIZE]
        yield (f"lanes of {coll}'s {algorithm}, root {root}, by both NICs alike",
               lambda flags=flags: carried((True, True), lanes[0], also=lanes[1], sweep=flags,
                                           settings={"TUTTI_LOG": "debug"}, alike=True))
    yield ("equally near, and off",
           lambda: carried((True, False), "", settings={"TUTTI_NIC_NEAR": "off"}, packages=1))
    yield ("a description of other NICs",
           lambda: carried((True, False), "", names=("eth8", "eth9"),
                           also="TUTTI_TOPOLOGY describes no NIC that is up here"))
    yield "off", lambda: carried((True, False), "", settings={"TUTTI_NIC_NEAR": "off"})
    yield ("the user's interface comes first",
           lambda: carried((True, False), "", settings={"TUTTI_IFNAME": "=net0"}))
    yield ("near ones of those that the user names",
           lambda: carried((True, True), r"goes by nic net1", settings={"TUTTI_IFNAME": "net"}))
    yield ("a NIC that is near and leads nowhere",
           lambda: carried((True, False), "net1", wiring="elsewhere"))
    # No address is in a network with another, so the near one is tried first.
    yield ("a NIC that is near and leads nowhere, tried first",
           lambda: carried((True, False), "net1", wiring="routed", settings={"TUTTI_LOG": "debug"},
                           also=r"10\.78\.1\.2:\d+: Network is unreachable"))
    yield ("a NIC that is near and has no address",
           lambda: carried((True, False), "", wiring="bare"))


def machine_cases():
    """What needs no namespaces."""
    yield ("an unknown choice", lambda: refused(
        {"TUTTI_NIC_NEAR": "perhaps"}, "TUTTI_NIC_NEAR is \"perhaps\"; expected off or auto"))
    yield ("a description that is not there", lambda: refused(
        {"TUTTI_TOPOLOGY": "/nowhere/host.json"}, "TUTTI_TOPOLOGY", "cannot open /nowhere/host"))

    def broken():
        with File('{"format": "tutti-topology 1", "source": "x", "nodes": [') as path:
            refused({"TUTTI_TOPOLOGY": path}, "TUTTI_TOPOLOGY", re.escape(path))
    yield "a description that is cut off", broken


def main():
    """Everything; without namespaces what needs none, and a loud word about the rest."""
    why = namespaces_work()

    def skip():
        raise job.Skip(why)

    if why:
        print(f"SKIPPED: no network namespaces here, so NICs are not tested: {why}")
    wired = ((name, skip if why else case) for name, case in cases())
    job.main([*wired, *machine_cases()], all_needed=True)


if __name__ == "__main__":
    main()
