#!/usr/bin/env python3
"""Collectives between hosts whose lines have a rate: `./dev hosts`.

Hosts are network namespaces behind a switch, each line limited both ways (tests/system/namespaces.py),
or behind a switch for each of their NICs (--nics), which are all as near to each of their ranks.
Every setting is measured in rounds, all of its algorithms in each; a figure is the median of the
rounds. Beside ours: what plain TCP streams get around the same ring of hosts, in the same rounds,
which is what the line carries of a program's bytes, and what its frames have room for: tc's rate
counts the headers of Ethernet, IP and TCP. Below the table: which part of the bytes that tc counted
on the lines were data, and how many segments TCP sent again.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "system"))
import job
import namespaces

STREAM_PORT = 29500
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


# Of an operation's size, what `count` ranks (or hosts) each have to send.
PASSES = {
    "all_reduce": lambda count: 2 * (count - 1) / count,
    "all_gather": lambda count: (count - 1) / count,
    "reduce_scatter": lambda count: (count - 1) / count,
    "broadcast": lambda count: 1,
    "reduce": lambda count: 1,
}


def number(text):
    """4M as bytes."""
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def bits(rate):
    """1gbit as bits a second."""
    for word, factor in (("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3)):
        if rate.endswith(word):
            return float(rate.removesuffix(word)) * factor
    raise SystemExit(f"hosts.py: --rate {rate}: say it as 1gbit or 100mbit")


# ---- plain TCP streams ---------------------------------------------------------------------------


def take(seconds, address):
    """One end of a stream: bytes a second of what comes within `seconds`, but for the first part."""
    with socket.create_server((address, STREAM_PORT)) as server:
        server.settimeout(10)
        peer, _ = server.accept()
        room = memoryview(bytearray(1 << 20))
        begun, taken, now = time.monotonic(), 0, 0.0
        warm, counted = seconds / 4, 0
        while now < seconds:
            got = peer.recv_into(room)
            now = time.monotonic() - begun
            taken += got
            if now < warm:
                counted, since = taken, now
            if not got:
                break
        print((taken - counted) / (now - since))


def give(address):
    """The other."""
    data = bytes(1 << 20)
    with socket.create_connection((address, STREAM_PORT), 10) as peer:
        try:
            while True:
                peer.sendall(data)
        except OSError:
            return


def streams(network, seconds=1.0):
    """Each host sends to the next at a time, by all of its NICs; the mean of what came at a host, in
    bits a second."""
    count = len(network.names)
    ends = [(k, nic) for k in range(count) for nic in range(network.nics)]
    takers = [subprocess.Popen(network.inside(k, sys.executable, __file__, "--take", str(seconds),
                                              network.address_of(k, nic)),
                               stdout=subprocess.PIPE, text=True) for k, nic in ends]
    time.sleep(0.5) # they have no other way to say that they listen
    givers = [subprocess.Popen(network.inside(k, sys.executable, __file__, "--give",
                                              network.address_of((k + 1) % count, nic)))
              for k, nic in ends]
    rates = [float(each.communicate(timeout=30)[0]) for each in takers]
    for each in givers:
        each.wait(30)
    return 8 * sum(rates) / count


# ---- what went over the lines --------------------------------------------------------------------

# Of a frame, as tc counts it: Ethernet's header, IP's and TCP's, TCP's time stamps.
ETHERNET, HEADERS = 14, 14 + 20 + 20 + 12


def frame_share(mtu):
    """The part of a full frame that is a program's."""
    return (mtu + ETHERNET - HEADERS) / (mtu + ETHERNET)


class Traffic:
    """Frames and bytes that all lines took since the last look, and segments sent again."""

    def __init__(self, network):
        self.network, self.last = network, (0, 0, 0, 0)
        self.sum = [0, 0, 0, 0]
        self.look()

    def look(self):
        """The counts of tc and of the kernels' TCP, now."""
        now = [0, 0, 0, 0] # bytes, frames, drops, segments sent again
        for k, name in enumerate(self.network.names):
            for space, device in self.network.ends(k, name):
                told = subprocess.run(["tc", "-n", space, "-s", "-j", "qdisc", "show", "dev", device],
                                      capture_output=True, text=True, check=True).stdout
                queue = json.loads(told)[0]
                now[2] += queue["drops"]
                if space == name:
                    now[0] += queue["bytes"]
                    now[1] += queue["packets"]
            told = subprocess.run(self.network.inside(k, "cat", "/proc/net/snmp"),
                                  capture_output=True, text=True, check=True).stdout
            names, values = (line.split() for line in told.splitlines() if line.startswith("Tcp:"))
            now[3] += int(values[names.index("RetransSegs")])
        change = [new - old for new, old in zip(now, self.last)]
        self.last = now
        return change

    def add(self):
        """What went since the last look belongs to ours."""
        self.sum = [a + b for a, b in zip(self.sum, self.look())]

    def text(self):
        """As a sentence."""
        carried, frames, drops, again = self.sum
        return (f"{100 * (1 - HEADERS * frames / carried):.2f}% of the bytes on the hosts' lines were "
                f"data; {again} of {frames} segments were sent again, the lines dropped {drops}")


# ---- ours ----------------------------------------------------------------------------------------


def measure(network, ranks, size, algorithm, options, environment):
    """(median us of single operations, name of the algorithm)."""
    flags = ["--coll", options.coll, "-b", size, "-e", size, "-n", options.iterations, "-w", 2,
             "--transport", "shm,tcp" if ranks > 1 else "tcp"]
    if algorithm != "chosen":
        flags += ["--algo", f"{options.coll}={algorithm}"]
    row = network.run(ranks, *map(str, flags), seconds=90, dealt=options.dealt,
                      environment=environment).rows()[0].split()
    return float(row[-3]), row[-1]


def setting(count, ranks, options, line):
    """The rows of so many hosts and ranks."""
    nics = [f"eth{nic}" for nic in range(options.nics)]
    near = namespaces.description(0, nics, packages=1)
    hosts = namespaces.Hosts(count, rate=options.rate, mtu=options.mtu, nics=options.nics)
    with hosts as network, namespaces.File(near) as path:
        environment = {"TUTTI_TOPOLOGY": path} if options.nics > 1 else None
        plain = []
        figures = {(size, name): [] for size in options.sizes for name in options.algorithms}
        names, traffic = {}, Traffic(network)
        for _ in range(options.rounds):
            plain.append(streams(network))
            traffic.look()
            for size, algorithm in figures:
                us, name = measure(network, ranks, size, algorithm, options,
                                   environment)
                traffic.add()
                figures[size, algorithm].append(us)
                names[size, algorithm] = name
    world, stream = count * ranks, statistics.median(plain)
    for (size, algorithm), times in figures.items():
        us = statistics.median(times)
        bus = 8e6 * number(size) / us * PASSES[options.coll](world)
        # What has to pass each host's line, whatever the algorithm: 2 (h-1)/h of an all-reduce.
        least = 8e6 * number(size) / us * PASSES[options.coll](count)
        name = names[size, algorithm] + (" (chosen)" if algorithm == "chosen" else "")
        print(f"| {count} x {ranks}{', dealt' if options.dealt else ''} | {size} | {name} | {us / 1000:.2f} | {bus / 1e9:.3f} | "
              f"{100 * bus / line:.1f}% | {100 * least / line:.1f}% | "
              f"{100 * least / line / frame_share(options.mtu):.1f}% | "
              f"{100 * least / stream:.1f}% | {100 * (max(times) - min(times)) / us:.0f}% |",
              flush=True)
    return stream, traffic


def main():
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="./dev hosts",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="4x1", help="hosts x ranks on each: 2x1,4x1,4x2")
    parser.add_argument("--dealt", action="store_true",
                        help="number the ranks across hosts in turn, not host by host")
    parser.add_argument("--coll", default="all_reduce", choices=sorted(PASSES))
    parser.add_argument("--sizes", default="16M,64M", type=lambda text: text.split(","))
    parser.add_argument("--algorithms", default="chosen", type=lambda text: text.split(","),
                        help="chosen (what the library takes), or names")
    parser.add_argument("--nics", default=1, type=int,
                        help="lines of each host, each on a network of its own; ranks go by them in "
                        "turn")
    parser.add_argument("--rate", default="1gbit", help="of each line, each way")
    parser.add_argument("--mtu", default=1500, type=int)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--iterations", default=5, type=int)
    parser.add_argument("--take", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--give", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.take:
        return take(float(options.take[0]), options.take[1])
    if options.give:
        return give(options.give)
    why = namespaces.namespaces_work()
    if why:
        print(f"hosts.py: SKIPPED: no network namespaces here: {why}", file=sys.stderr)
        return job.SKIPPED
    line = bits(options.rate) * options.nics
    lines = f"line {options.rate}" if options.nics == 1 else f"{options.nics} lines {options.rate}"
    print(f"{lines}, MTU {options.mtu}; medians of {options.rounds} rounds\n\n"
          "| hosts x ranks | size | algorithm | ms | bus Gbit/s | of the line | least bytes, of the "
          "line | of what frames hold | of plain TCP | spread |\n"
          "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    said = []
    for text in options.hosts.split(","):
        count, _, ranks = text.partition("x")
        stream, traffic = setting(int(count), int(ranks or 1), options, line)
        print(f"| {text} | - | plain TCP, each host to the next | - | {stream / 1e9:.3f} | "
              f"{100 * stream / line:.1f}% | - | {100 * stream / line / frame_share(options.mtu):.1f}% | "
              "- | - |")
        said.append(f"{text}: {traffic.text()}.")
    print(f"\nFrames hold {100 * frame_share(options.mtu):.2f}% data.", *said, sep="\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except job.Failure as problem:
        sys.exit(f"hosts.py: {problem}")
