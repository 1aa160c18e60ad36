"""Faults of the network between two hosts (network namespaces behind a bridge): cables, one-way loss,
a host that is gone (faults.py)."""
import os
import signal
import time

import befall
import job
import test_hosts
from befall import GRACE, TIMEOUT
from namespaces import Routed

PORT = 29400
DESTROY = 5  # seconds that destroying may take, whoever is gone


def ip(*words):
    """The ip command."""
    test_hosts.ip(*words)


def on_hosts(fault, names, heals_s=None, destroying=False, mends=None, hosts=test_hosts.Hosts,
             timeout=TIMEOUT):
    """Two hosts of two ranks; something happens to the second. Rows for those that live. With
    `heals_s` it is mended so much later, and nobody may have an error.
    `destroying`: just before all of them destroy their communicators, which nobody may mind."""
    why = test_hosts.namespaces_work()
    if why:
        raise job.Skip(why)
    with hosts(2) as network:
        ranks = befall.Ranks.__new__(befall.Ranks)
        ranks.size, ranks.go = 4, f"/tmp/tutti-fault-{os.getpid()}"
        ranks.before, ranks.jobs = set(), {}
        try:
            for rank in range(4):
                flags = ["--go", ranks.go, *(["--pause", "destroy"] if destroying else [])]
                ranks.jobs[rank] = job.Job(
                    network.inside(rank // 2, befall.RANK, *flags),
                    {**job.by_hand(rank, 4, PORT, network.address), "TUTTI_TIMEOUT": str(timeout),
                     "TUTTI_INIT_TIMEOUT": "10", "TUTTI_TUNING": "off", "TUTTI_DEVICE": "host"})
            for rank in range(4):
                ranks.until(rank, "pause" if destroying else "working")
            at = time.monotonic()
            dead = fault(network, ranks) or ()
            if heals_s is not None:
                time.sleep(heals_s)
                (mends or mend)(network)
                time.sleep(1.5)
                ranks.release()
            for rank in dead:
                ranks.jobs[rank].end()
                del ranks.jobs[rank]
            if destroying:
                ranks.release()
            error = heals_s is None and not destroying
            limit = (DESTROY if destroying else timeout) + GRACE
            row = {"survivors": befall.survivors_of(ranks, None, at, limit), "limit_s": limit}
            row["left"] = sorted(f"process {pid}" for each in ranks.jobs.values()
                                 for pid in job.marked(each.mark))
            row["wrong"] = befall.verdict(row, limit, names if error else None, error)
            row["wrong"] += [f"rank {r['rank']} was through after {r['over']} s"
                             for r in row["survivors"] if destroying and r["over"] > limit]
            return row
        finally:
            ranks.end()


def cut(network, _):
    """The second host's cable is pulled."""
    ip("-n", network.switch, "link", "set", "port1", "down")


def mend(network):
    """... and put back."""
    ip("-n", network.switch, "link", "set", "port1", "up")


def one_way(sender, receiver):
    """What one host sends to the other goes nowhere: its frames have an address that nobody has."""
    def fault(network, _):
        ip("-n", network.names[sender], "neigh", "replace", f"10.77.0.{receiver + 1}", "lladdr",
           "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")
    return fault


def address_gone(network, _):
    """Somebody takes the second host's address away."""
    ip("-n", network.names[1], "address", "del", "10.77.0.2/24", "dev", "eth0")


def forgotten(network, _):
    """A box on the way forgets the connections between ranks; not the bootstrap's."""
    between = [pair for pair in network.connections() if PORT not in pair]
    if len(between) < 4:
        raise job.Failure(f"only {len(between)} connections between 2 and 2 ranks")
    for near, far in between:
        network.forget(near, far)


def crash(_, ranks):
    """All processes of the second host die without a word."""
    for rank in (2, 3):
        for pid in job.marked(ranks.jobs[rank].mark):
            os.kill(pid, signal.SIGKILL)
    return (2, 3)


def cases():
    """All of them."""
    other = r"rank \d"
    found = [
        ("cable pulled between two hosts", lambda: on_hosts(cut, other)),
        ("cable pulled, and back after 1 s", lambda: on_hosts(cut, other, 1)),
        ("frames of host 0 to host 1 are lost (one way)", lambda: on_hosts(one_way(0, 1), other)),
        ("frames of host 1 to host 0 are lost (one way)", lambda: on_hosts(one_way(1, 0), other)),
        ("host 1 loses its address", lambda: on_hosts(address_gone, other)),
        ("cable pulled while communicators are destroyed",
         lambda: on_hosts(cut, other, destroying=True)),
        ("a router forgets the connections between ranks",
         lambda: on_hosts(forgotten, other, 6, mends=lambda _: None, hosts=Routed, timeout=12)),
        ("host 1 dies", lambda: on_hosts(crash, r"rank [23]")),
    ]
    for _, function in found:
        function.on_hosts = True
    return [(name, "tcp and shm", function) for name, function in found]
