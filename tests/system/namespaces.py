"""Several hosts on one machine: network namespaces, joined by a bridge, one tuttirun in each.

Needs root and the right to make network namespaces. With a rate, each host's line carries so much
each way: its interface sends no faster, nor does the port of the switch towards it.
Read next: test_hosts.py, bench/hosts.py.
"""
import json
import os
import subprocess
import tempfile
import time

import job

PORT = 29400
QUEUE = "10ms" # what a port of the switch keeps of a full line before it drops


def ip(*words):
    """The ip command; its failure is ours."""
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise job.Failure(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")


def description(gpus, names=("net0", "net1"), packages=2):
    """A host of two packages, each with a core and a NIC, and with a GPU where it has some; or all of
    that in one."""
    nodes, links, package = [{"kind": "host", "parent": -1, "os_index": 0}], [], 0
    for k, name in enumerate(names):
        if k < packages:
            package = len(nodes)
            nodes.append({"kind": "package", "parent": 0, "os_index": k})
            nodes.append({"kind": "numa", "parent": package, "os_index": k})
        if gpus:
            nodes.append({"kind": "gpu", "parent": package + 1, "os_index": k})
        nodes.append({"kind": "nic", "parent": package + 1, "name": name})
        nodes.append({"kind": "core", "parent": package + 1, "os_index": k})
        nodes.append({"kind": "pu", "parent": len(nodes) - 1, "os_index": k})
    return json.dumps({"format": "tutti-topology 1", "source": "made up", "nodes": nodes,
                       "links": links})


class File:
    """A description's path, for as long as it is needed."""

    def __init__(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            file.write(text)
        self.path = file.name

    def __enter__(self):
        return self.path

    def __exit__(self, *_):
        os.unlink(self.path)


class Hosts:
    """Namespaces 10.77.0.1.. (or fd77::1..) behind a bridge in a namespace of its own.

    rate: of each host's line, as tc has it ("1gbit"); mtu: of all interfaces; delay: of each line,
    one way, as netem has it (its kernel must have that); nics: lines of each host, eth0 and so on,
    each on a network of its own (10.77.0, 10.77.1, ...)."""

    def __init__(self, count, ipv6=False, rate=None, mtu=1500, delay=None, nics=1):
        self.prefix = f"tutti{os.getpid()}"
        self.names = [f"{self.prefix}h{k}" for k in range(count)]
        self.switch = f"{self.prefix}s"
        self.address = "fd77::1" if ipv6 else "10.77.0.1"
        self.ipv6, self.rate, self.mtu, self.delay, self.nics = ipv6, rate, mtu, delay, nics

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
        for nic in range(self.nics):
            ip("-n", self.switch, "link", "add", f"bridge{nic}", "mtu", self.mtu, "type", "bridge")
            ip("-n", self.switch, "link", "set", f"bridge{nic}", "up")
        for k, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            for nic in range(self.nics):
                self.wire(k, name, nic)

    def wire(self, k, name, nic):
        """A cable from a host to the switch."""
        device, port = f"eth{nic}", self.port(k, nic)
        ip("link", "add", device, "mtu", self.mtu, "netns", name, "type", "veth", "peer", "name",
           port, "mtu", self.mtu, "netns", self.switch)
        ip("-n", self.switch, "link", "set", port, "master", f"bridge{nic}", "up")
        if self.ipv6:
            ip("-n", name, "address", "add", f"fd77::{k + 1}/64", "dev", device, "nodad")
        else:
            ip("-n", name, "address", "add", f"{self.address_of(k, nic)}/24", "dev", device)
        ip("-n", name, "link", "set", device, "up")
        for space, end in ((name, device), (self.switch, port)):
            self.keep_order(space, end, k)
            self.shape(space, end)

    def ends(self, k, name):
        """(namespace, interface) of both ends of a host's cables."""
        for nic in range(self.nics):
            yield name, f"eth{nic}"
            yield self.switch, self.port(k, nic)

    @staticmethod
    def port(k, nic):
        """The switch's, to a NIC of a host."""
        return f"port{k}" if nic == 0 else f"port{k}n{nic}"

    @staticmethod
    def address_of(k, nic):
        """Of a host, on a NIC."""
        return f"10.77.{nic}.{k + 1}"

    @staticmethod
    def keep_order(name, device, k):
        """One processor takes in what comes over a cable. Otherwise it is the one that runs the
        sender at the moment, and frames overtake each other, which no cable does and TCP takes for
        losses. A kernel without this goes on without."""
        mask = f"{1 << k % min(os.cpu_count() or 1, 8):x}"
        subprocess.run(["ip", "netns", "exec", name, "sh", "-c",
                        f"echo {mask} > /sys/class/net/{device}/queues/rx-0/rps_cpus"],
                       capture_output=True, check=False)

    def shape(self, name, device):
        """What an interface sends: at the line's rate, or late."""
        how = []
        if self.rate:
            how = ["tbf", "rate", self.rate, "burst", "128k", "latency", QUEUE]
        elif self.delay and name != self.switch:
            how = ["netem", "delay", self.delay, "limit", "100000"]
        if not how:
            return
        done = subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", device, "root", *how],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise job.Failure(f"tc qdisc add {' '.join(how)}: {done.stderr.strip()}")

    def __exit__(self, *_):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def inside(self, k, *words):
        """A command in host k."""
        return ["ip", "netns", "exec", self.names[k], *words]

    def start(self, k, ranks, *flags, environment=None, launch=(), node=None, program=job.BENCH):
        """Host k's tuttirun, with the flags `launch` of its own. `node`: (number, of so many), where
        a host has several."""
        number, nodes = node or (k, len(self.names))
        return job.Job(self.inside(
            k, job.TUTTIRUN, *launch, "--nnodes", nodes, "--node-rank", number, "-n", ranks,
            "--master-addr", self.address, "--master-port", PORT, program, *flags), environment)

    def start_all(self, ranks, *flags, environment=None, dealt=False):
        """Job by job, `ranks` ranks on each host: numbered host by host, or dealt out in turn."""
        count = len(self.names)
        nodes, each = (count * ranks, 1) if dealt else (count, ranks)
        for k in range(nodes):
            yield self.start(k % count, each, *flags, environment=environment, node=(k, nodes))

    def run(self, ranks, *flags, seconds=100, environment=None, dealt=False):
        """A job of `ranks` ranks a host to its good end; the first host's, which has the table."""
        jobs = []
        try:
            for each in self.start_all(ranks, *flags, environment=environment, dealt=dealt):
                jobs.append(each)
            self.judge(jobs, seconds)
        except job.Failure as failure:
            raise job.Failure("\n".join([str(failure), *(
                f"  host {k}| {line}" for k, each in enumerate(jobs) for line in each.err[-10:])])
                              ) from None
        finally:
            for each in jobs:
                each.end()
        return jobs[0]

    @staticmethod
    def judge(jobs, seconds):
        """Right data in one table; nothing left."""
        by = time.monotonic() + seconds
        for k, each in enumerate(jobs):
            each.succeed(max(0.1, by - time.monotonic()), tables=int(k == 0))
        for each in jobs:
            each.gone()


class Routed(Hosts):
    """Two hosts, 10.77.0.2 and 10.77.1.2, with a router between them that can forget connections."""

    def make(self):
        """Every namespace, wired and up."""
        self.address = "10.77.0.2"
        ip("netns", "add", self.switch)
        for k, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{k}",
               "netns", self.switch)
            ip("-n", name, "address", "add", f"10.77.{k}.2/24", "dev", "eth0")
            ip("-n", self.switch, "address", "add", f"10.77.{k}.1/24", "dev", f"port{k}")
            for space, device in ((name, "lo"), (name, "eth0"), (self.switch, f"port{k}")):
                ip("-n", space, "link", "set", device, "up")
            ip("-n", name, "route", "add", "default", "via", f"10.77.{k}.1")
        ip("netns", "exec", self.switch, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def connections(self):
        """[(port of host 0, port of host 1)] of the TCP connections between the two."""
        with subprocess.Popen(self.inside(0, "cat", "/proc/net/tcp"), stdout=subprocess.PIPE,
                              text=True) as table:
            rows = [line.split()[1:4] for line in table.stdout][1:]
        far = "02014D0A"  # 10.77.1.2, as this file has it on a little-endian machine
        return [(int(near.partition(":")[2], 16), int(remote.partition(":")[2], 16))
                for near, remote, state in rows if state == "01" and remote.startswith(far)]

    def forget(self, near, far):
        """Nothing of this connection gets through any more, and nobody is told."""
        for one, other in ((near, far), (far, near)):
            ip("-n", self.switch, "rule", "add", "ipproto", "tcp", "sport", one, "dport", other,
               "blackhole")


def namespaces_work():
    """Why this process may not make network namespaces with veth pairs; "" if it may."""
    try:
        with Hosts(1):
            return ""
    except job.Failure as failure:
        return str(failure)
    except FileNotFoundError:
        return "there is no ip command (package iproute2)"
