#!/usr/bin/env python3
"""What users get wrong ends at once, with a status that is not 0 and one clear line on stderr."""
import re
import socket

import job

QUICK = ["-b", "8", "-e", "64", "-n", "2", "-w", "1"]


def complains(running, seconds, *patterns, lines=1):
    """The job fails in time, with so many lines on stderr, which have all the patterns."""
    status = running.wait(seconds)
    running.check(0 < status < 128, f"exit status {status}")
    said = [line for line in running.err if line.strip()]
    running.check(len(said) == lines, f"{len(said)} lines on stderr, not {lines}")
    for pattern in patterns:
        running.check(any(re.search(pattern, line) for line in said), f"no word of \"{pattern}\"")
    running.check(not running.rows(), "a row of a table all the same")
    running.gone()


def wrong(flags, *patterns, environment=None, seconds=5):
    """A case: the benchmark with these flags."""
    def case():
        with job.Job([job.BENCH, *QUICK, *flags], environment) as running:
            complains(running, seconds, *patterns)
    return case


def wrong_launch(flags, *patterns):
    """A case: tuttirun with these flags."""
    def case():
        with job.Job([job.TUTTIRUN, *flags]) as running:
            complains(running, 5, *patterns)
    return case


def missing_peer():
    """Rank 1 never comes: rank 0 says which rank it waited for."""
    environment = {**job.by_hand(0, 2, job.free_port()), "TUTTI_INIT_TIMEOUT": "2"}
    with job.Job([job.BENCH, *QUICK], environment) as running:
        complains(running, 6, r"rank 1\b", r"2 s")


def missing_root():
    """Rank 0 never comes: rank 1 says where nobody was."""
    port = job.free_port()
    environment = {**job.by_hand(1, 2, port), "TUTTI_INIT_TIMEOUT": "2"}
    with job.Job([job.BENCH, *QUICK], environment) as running:
        complains(running, 6, rf"127\.0\.0\.1\D+{port}")


def taken_port(rank, *patterns):
    """Something else listens on MASTER_PORT."""
    def case():
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            environment = {**job.by_hand(rank, 2, port), "TUTTI_INIT_TIMEOUT": "2"}
            with job.Job([job.BENCH, *QUICK], environment) as running:
                complains(running, 6, str(port), *patterns)
    return case


def taken_port_of_tuttirun():
    """The same, for a launcher that was told the port."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with job.Job([job.TUTTIRUN, "-n", 2, "--master-port", port, job.BENCH, *QUICK]) as running:
            complains(running, 6, str(port), "taken")


def together(settings, *patterns, meet="30"):
    """A case: ranks of one job that differ; every one of them says how. `meet`: seconds, where one
    waits for another in vain."""
    def case():
        port = job.free_port()
        jobs = [job.Job([job.BENCH, *QUICK, *flags],
                        {**job.by_hand(rank, len(settings), port), "TUTTI_TIMEOUT": "30",
                         "TUTTI_INIT_TIMEOUT": meet, **environment})
                for rank, (flags, environment) in enumerate(settings)]
        try:
            for each in jobs:
                complains(each, 10, *patterns)
        finally:
            for each in jobs:
                each.end()
    return case


def cases():
    """(name, case)."""
    launched = ["-n", 2, job.BENCH]
    yield "an unknown flag", wrong(["--no-such-flag"], "no-such-flag")
    yield "an unknown short flag", wrong(["-Q"], "-Q")
    yield "a flag without its value", wrong(["--ranks"], "--ranks")
    yield "a size that is none", wrong(["-b", "banana"], "banana")
    yield "a rank count that is none", wrong(["--ranks", "0"], "--ranks", "0")
    yield "ranks that multiply to none", wrong(["-t", "65536", "-g", "65536"], "-t 65536: more than 4096 ranks")
    yield "threads times more", wrong(["-g", "64", "-t", "65"], "-t 65: more than 4096 ranks")
    yield "an unknown type", wrong(["-d", "quad"], "quad")
    yield "an unknown operator", wrong(["-o", "xor"], "xor")
    yield "a root that is no rank", wrong(["--coll", "broadcast", "-r", "7"], "7", "root")
    yield "an unknown transport", wrong(["--transport", "pigeon"], "pigeon", "shm", "tcp")
    yield "an unknown transport, threads", wrong(["--transport", "pigeon", "--threads"], "pigeon")
    yield ("an unknown transport by variable",
           wrong([], "pigeon", environment={"TUTTI_TRANSPORT": "pigeon"}))
    yield "an unknown algorithm", wrong(["--algo", "magic"], "magic", "ring")
    yield "an unknown algorithm of one", wrong(["--algo", "all_reduce=magic"], "magic", "ring")
    yield ("an unknown algorithm by variable",
           wrong([], "magic", "ring", environment={"TUTTI_ALGO": "magic"}))
    yield ("a deadline that is none",
           wrong([], "TUTTI_TIMEOUT", "soon", environment={"TUTTI_TIMEOUT": "soon"}))
    yield ("a log level that is none",
           wrong([], "TUTTI_LOG", "loud", "debug or trace", environment={"TUTTI_LOG": "loud"}))
    yield ("lanes that are none",
           wrong([], "TUTTI_LANES", "99", environment={"TUTTI_LANES": "99"}))
    yield ("TUTTI_STAGED_AHEAD",
           wrong([], "TUTTI_STAGED_AHEAD", "17", "16", environment={"TUTTI_STAGED_AHEAD": "17"}))
    yield ("more memory than there is", wrong(["-b", "1T", "-e", "1T"], r"2 ranks need 4096 GiB of memory"))
    yield "a plugin that is not there", wrong(["--plugin", "/no/such.so"], "/no/such.so")
    yield "a report that cannot be written", wrong(["--json", "/no/such/file"], "/no/such/file")
    yield "a missing rank", missing_peer
    yield "a missing rank 0", missing_root
    yield "a taken port, rank 0", taken_port(0, "taken")
    yield "a taken port, rank 1", taken_port(1)
    yield "a taken port, tuttirun", taken_port_of_tuttirun
    yield "a rank beyond the size", wrong(
        [], "RANK", "WORLD_SIZE", environment=job.by_hand(1, 1, 29500))
    yield "RANK alone", wrong([], "RANK", "WORLD_SIZE", environment={"RANK": "0"})
    yield "no place to meet", wrong([], "MASTER_ADDR",
                                    environment={"RANK": "0", "WORLD_SIZE": "2"})
    yield "OMPI and RANK differ", wrong(
        [], "OMPI_COMM_WORLD_RANK", r"\bRANK",
        environment={"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
                     **job.by_hand(0, 2, 29500)})
    yield "a rank that is no number", wrong([], "RANK", "one",
                                            environment={**job.by_hand(0, 2, 29500),
                                                         "RANK": "one"})
    yield "one rank's transport is unknown", together(
        [([], {"TUTTI_TRANSPORT": "shm"}), ([], {"TUTTI_TRANSPORT": "pigeon"})],
        "pigeon|rank 1 of 2 has not joined", meet="5")
    yield "no transport in common", together(
        [([], {"TUTTI_TRANSPORT": "shm"}), ([], {"TUTTI_TRANSPORT": "tcp"})],
        r"no transport reaches rank \d")
    yield "lanes differ", together(
        [([], {"TUTTI_LANES": "1"}), ([], {"TUTTI_LANES": "4"})], "TUTTI_LANES")
    yield "two processes are rank 1", together(
        [([], {"WORLD_SIZE": "3"}), ([], {"WORLD_SIZE": "3"}),
         ([], {"WORLD_SIZE": "3", "RANK": "1"})], "two processes.*rank 1")
    yield "secrets differ", together(
        [([], {"TUTTI_SECRET": "00" * 32}), ([], {"TUTTI_SECRET": "11" * 32})], "rank 1 of 2", meet="5")
    yield "sizes differ", together(
        [([], {}), ([], {"WORLD_SIZE": "3"})], r"rank 0\b.*\b2\b|\b2\b.*rank 0\b", r"\b3\b")
    yield "algorithms differ", together(
        [([], {"TUTTI_ALGO": "ring"}), ([], {"TUTTI_ALGO": "tree"})], "ring", "tree")
    yield "the reproducible mode differs", together(
        [([], {"TUTTI_REPRODUCIBLE": "1"}), ([], {"TUTTI_REPRODUCIBLE": "0"})],
        "reproducible mode.*on on rank 0.*off on rank 1")
    for ahead in ({}, {"TUTTI_STAGED_AHEAD": "3"}): # the usual one may be said, too
        yield f"how far a root gets ahead differs, {ahead}", together(
            [([], {"TUTTI_STAGED_AHEAD": "0"}), ([], ahead)],
            "TUTTI_STAGED_AHEAD is 0 on rank 0, but 3 on rank 1")
    yield ("an algorithm that has no order",
           wrong(["--algo", "ring"], "ring", "reproducible mode",
                 "one_shot, two_shot, ordered_chain", environment={"TUTTI_REPRODUCIBLE": "1"}))
    yield "types differ", together([(["-d", "float"], {}), (["-d", "int32"], {})],
                                   "float32", "int32")
    yield "operators differ", together([(["-o", "sum"], {}), (["-o", "max"], {})],
                                       r"\bsum\b", r"\bmax\b")
    yield "collectives differ", together(
        [(["--coll", "all_reduce"], {}), (["--coll", "broadcast"], {})],
        "all_reduce", "broadcast")
    yield "sizes of messages differ", together([(["-b", "8"], {}), (["-b", "16"], {})],
                                               "count 2", "count 4")
    yield "tuttirun without a program", wrong_launch(["-n", 2], "PROGRAM")
    yield "tuttirun of nothing", wrong_launch(["-n", 2, "/no/such/program"], "/no/such/program")
    yield "tuttirun with an unknown flag", wrong_launch(["--magic", *launched], "magic")
    yield "tuttirun of no ranks", wrong_launch(["-n", 0, job.BENCH], "0")


if __name__ == "__main__":
    job.main(list(cases()))
