#!/usr/bin/env python3
"""Faults x transports: what happens to a job of three ranks, what each survivor is told and when,
and what is left behind. Each row is a real run.

    ./dev faults                   all, into docs/measurements/faults.md and faults.json
    ./dev faults --only killed     the faults whose name has a word of these; nothing is written
    ./dev faults --list
    ./dev faults --rdma FILE       all, and the rows over RDMA that `./dev rdma table` left there

The faults: faults_ranks.py (deaths, stops, calls, scarcity, clocks), faults_strangers.py (who is
none of the job's), faults_network.py (cables). The engine: befall.py.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

import befall
import job
import faults_network
import faults_ranks
import faults_strangers
import faults_table

HERE = os.path.dirname(os.path.abspath(__file__))
ALONE = 2  # runs at a time
AGAIN = 3  # as often at most, where the machine stood still for so many seconds
STILL = 1.0


def all_cases():
    """[(fault, transport, function)] in the order of the table."""
    return [*faults_ranks.cases(), *faults_network.cases(), *faults_strangers.cases()]


def run_one(fault, transport):
    """One run, here; prints its row as JSON."""
    for name, carrier, function in [*all_cases(), *faults_ranks.rdma_cases()]:
        if (name, carrier) != (fault, transport):
            continue
        begin, began_awake = time.monotonic(), job.awake()
        try:
            row = function()
        except job.Skip as skip:
            row = {"skipped": str(skip)}
        except job.Failure as failure:
            row = {"survivors": [], "left": [], "wrong": [f"did not come to it: {failure}"]}
        took = time.monotonic() - begin
        print(json.dumps({"fault": fault, "transport": transport, **row, "run_s": round(took, 1),
                          "stood_still_s": round(began_awake + took - job.awake(), 1)}))


def run_apart(case):
    """One run, in a network and mounts of its own; again where it is not as it must be and the
    machine stood still meanwhile: then deadlines passed while nobody could have done anything."""
    for _ in range(AGAIN):
        row = run_once(*case)
        if not row["wrong"] or row.get("stood_still_s", 0) < STILL:
            break
    return row


def run_once(fault, transport, function):
    """The row of one run."""
    command = [sys.executable, os.path.abspath(__file__), "--run", fault, transport]
    environment = dict(os.environ)
    if getattr(function, "on_hosts", False):  # makes its namespaces itself
        environment["TUTTI_ISOLATED"] = "hosts"
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env=environment, timeout=150)
        row = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError, subprocess.TimeoutExpired) as error:
        row = {"fault": fault, "transport": transport, "survivors": [], "left": [],
               "wrong": [f"the run failed: {error}"]}
    row.setdefault("wrong", [])
    state = "SKIPPED" if "skipped" in row else "FAILED " if row["wrong"] else "ok     "
    print(f"{state} {fault}, {transport} ({row.get('run_s', 0)} s)", flush=True)
    for line in row.get("wrong", []):
        print(f"        {line}", flush=True)
    if "skipped" in row:
        print(f"        {row['skipped']}", flush=True)
    return row


def cannot_write(folder):
    """Make the folder of the page, before half an hour of runs; why that cannot be, or None."""
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"--output {folder}: {error}"


def main():
    """Run, tell, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", nargs="+", metavar="WORD")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--rdma", metavar="FILE", help="rows that `./dev rdma table` made")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=ALONE, help="runs at a time (%(default)s)")
    parser.add_argument("--output", default=os.path.join(HERE, "../../docs/measurements"))
    arguments = parser.parse_args()
    if arguments.run:
        if os.environ.get("TUTTI_ISOLATED") != "hosts":
            job.isolate()
        run_one(*arguments.run)
        return 0
    chosen = [case for case in all_cases() if not arguments.only or
              any(word in f"{case[0]}, {case[1]}" for word in arguments.only)]
    if arguments.list:
        print("\n".join(f"{fault}, {transport}" for fault, transport, _ in chosen))
        return 0
    why = None if arguments.only else cannot_write(arguments.output)
    rdma = []
    try:
        if arguments.rdma:
            with open(arguments.rdma, encoding="utf-8") as file:
                rdma = [json.loads(line) for line in file]
    except (OSError, ValueError) as error:
        why = f"--rdma {arguments.rdma}: {error}"
    if why or not chosen:
        sys.exit(f"faults: {why or 'no fault has a word of these: ' + ' '.join(arguments.only)}")
    os.environ.pop("TUTTI_ISOLATED", None)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(run_apart, chosen))
    bad = sum(bool(row.get("wrong")) for row in rows)
    skipped = sum("skipped" in row for row in rows)
    print(f"{len(rows) - bad - skipped} as they must be, {bad} not, {skipped} skipped")
    if not arguments.only:
        faults_table.write(arguments.output, [*rows, *rdma], befall.TIMEOUT, befall.INIT_TIMEOUT)
    return 1 if bad or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
