#!/usr/bin/env python3
"""How much of communication hides behind the backward pass: four ranks in network namespaces, joined
by a bridge at a rate at which communication takes about 80% of the backward pass; steps with and
without overlap, beside PyTorch DDP over Gloo on the same model, batch and namespaces. Needs root, the
right to make namespaces, a release build, and for the peer a Python with PyTorch.

    examples/compare/overlap.py --rounds 3

Ranks that share cores slow each other, so both times are measured here, with all ranks at once, on
steps that reduce the same buckets when the last rank has finished its backward pass (--late): what
they wait for gradients is the communication time, the rest of the step the compute time. The bound is
1.15 times the longer of the two.

Ranks are bound to cores in turn, so that the kernel cannot put three on one and one on another; and
TCP uses Reno, since BBR, the default of some kernels, guesses a rate from bursts of some milliseconds
and keeps to it: the same bytes take one to two times as long, by chance."""

import argparse
import os
import re
import statistics
import sys

import contest

sys.path.insert(0, os.path.join(contest.ROOT, "tests/system"))
from namespaces import Hosts, ip  # network namespaces, each with an address, behind a bridge

BOUND, SHARE = 1.15, 0.8
REPORT = re.compile(r"; ([\d.]+) ms were waited\n.*backward ([\d.]+) ms")


def contenders(o):
    peers = [contest.Contender("PyTorch DDP over Gloo", True, ["--bucket", o.bucket]),
             contest.Contender("PyTorch DDP over Gloo, no overlap", True, ["--no-overlap"])]
    return [contest.Contender("Tutti", False, ["--bucket", o.bucket, "--in-flight", o.in_flight]),
            contest.Contender("Tutti, no overlap", False, ["--late", "--bucket", o.bucket,
                                                           "--in-flight", o.in_flight]),
            *([] if o.no_peer else peers)]


class Network:
    """The namespaces, and how fast each host sends."""

    def __init__(self, hosts, bound):
        self.hosts = hosts
        cores = sorted(os.sched_getaffinity(0))
        self.bind = [["taskset", "-c", str(cores[k * len(cores) // len(hosts.names)])] if bound else []
                     for k in range(len(hosts.names))]
        for name in hosts.names:
            ip("netns", "exec", name, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno")
        self.how = {"prefixes": [["ip", "netns", "exec", name] for name in hosts.names],
                    "address": hosts.address,
                    "extra": {"GLOO_SOCKET_IFNAME": "eth0", "TUTTI_TRANSPORT": "tcp"}}

    def rate(self, mbit):
        for k, name in enumerate(self.hosts.names):
            self.how["prefixes"][k] = ["ip", "netns", "exec", name, *self.bind[k], "env",
                                        f"TUTTI_HOST_ID=host{k}"]
            ip("netns", "exec", name, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate",
               f"{mbit}mbit", "burst", "128kb", "latency", "50ms")


def waited(contender):
    """(ms waited for gradients, ms of the backward pass), means over the steps of the last run."""
    found = REPORT.search(contender.said)
    if not found:
        sys.exit(f"no report of times in:\n{contender.said}")
    return float(found[1]), float(found[2])


def calibrate(o, network, folder, data, weights):
    """The rate at which reducing takes SHARE of the backward pass, by three tries."""
    probe, mbit = contenders(o)[1], o.rate or 400
    for _ in range(0 if o.rate else 3):
        network.rate(round(mbit))
        contest.run(probe, o, folder, data, weights, **network.how)
        wait, backward = waited(probe)
        print(f"  at {mbit:.0f} Mbit/s {wait:.1f} ms are communicated, the backward pass takes "
              f"{backward:.1f} ms", flush=True)
        mbit *= wait / (SHARE * backward)
    network.rate(round(mbit))
    return round(mbit)


def page(o, both, mbit, waits, apart):
    step = {c: statistics.median(c.medians) for c in both}
    ours, late = both[:2]
    wait, backward = (statistics.median(row[i] for row in waits) for i in (0, 1))
    compute = step[late] - wait
    longer = max(compute, wait)
    ratio = step[ours] / longer
    bound = "" if o.free else ", bound to cores in turn"
    lines = [f"{o.ranks} ranks in network namespaces, {mbit} Mbit/s each way (tbf, Reno), {o.cores} thread "
             f"a rank{bound}; {o.size} {' '.join(o.shape)}, batch {o.batch}, buckets of {o.bucket} MiB; "
             f"median of {len(waits)} interleaved rounds of {o.steps - contest.WARM} steps",
             contest.versions(o, not o.no_peer),
             f"losses are {apart[0]:.1e} apart in the first step, {apart[1]:.1e} at most", "",
             f"compute {compute:.1f} ms (backward pass {backward:.1f}), communication {wait:.1f} ms: "
             f"{100 * wait / backward:.0f}% of the backward pass", "",
             "| | ms a step | spread | of max(compute, communication) |", "|---|---|---|---|"]
    for c in both:
        lines.append(f"| {c.name} | {step[c]:.1f} | {min(c.medians):.1f} .. {max(c.medians):.1f} | "
                     f"{step[c] / longer:.2f} |")
    lines += ["", f"bound: {BOUND} x {longer:.1f} = {BOUND * longer:.1f} ms: "
              + ("held" if ratio <= BOUND else "MISSED")]
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    contest.common_flags(p, "tiny", 128, 20, 4)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--bucket", default="0.25", help="MiB")
    p.add_argument("--in-flight", default="2", help="collectives at once (ours)")
    p.add_argument("--rate", type=int, default=0, help="Mbit/s; 0: so that 80%% is met")
    p.add_argument("--free", action="store_true", help="do not bind ranks to cores")
    p.add_argument("--no-peer", action="store_true", help="without PyTorch DDP")
    o = p.parse_args()
    o.shape = contest.shape_of(o)
    both, waits = contenders(o), []
    with contest.temporary() as folder, Hosts(o.ranks) as hosts:
        data = contest.text(folder)
        weights = None if o.no_peer else contest.weights_for(o, folder, data)
        network = Network(hosts, not o.free)
        mbit = calibrate(o, network, folder, data, weights)
        for _ in range(o.rounds):
            for c in both:
                contest.run(c, o, folder, data, weights, **network.how)
                print(f"  {c.name}: {c.medians[-1]:.1f} ms", flush=True)
            waits.append(waited(both[1]))
            contest.put_out(o, page(o, both, mbit, waits, contest.same_losses(both, 0.05)))


main()
