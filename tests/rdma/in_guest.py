#!/usr/bin/env python3
"""The tests of the RDMA transport, over soft-RoCE: run in the virtual machine of vm.py.

    in_guest.py GROUP...     groups: conformance rails operations device faults table; delay and bench,
                             which want an idle machine; short: what CI runs;
                             any other word: the cases that have it in their names

Ranks of even number use rxe0 (and rxe2), the others rxe1 (and rxe3), so that every second pair of
ranks talks over the cable, which the fault tests cut and disturb.
"""
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "system"))
import drop_large
import job

TESTS = os.path.join(job.BIN, "..", "tests")
ONE = {"TUTTI_RDMA_DEVICES": "rxe0/rxe1"}
RAILS = {"TUTTI_RDMA_DEVICES": "rxe0,rxe2/rxe1,rxe3", "TUTTI_RDMA_QPS": "2"}
CABLE, SECOND_CABLE = ("e0", "e1"), ("e2", "e3")
# Seconds. For ends that come: an emulated processor on a host with others may have a tenth of a core.
LIMIT = 180.0


def command(words, environment, limit=480):
    """Run a program of ours to its end; its output is ours. Every half a minute: that it runs."""
    begun, text = time.monotonic(), " ".join(map(str, words[1:]))
    with subprocess.Popen([str(word) for word in words],
                          env={**job.clean_environment(), **environment}) as process:
        status = None
        while status is None:
            try:
                status = process.wait(30)
            except subprocess.TimeoutExpired:
                print(f"        {text}: for {time.monotonic() - begun:.0f} s", flush=True)
                if time.monotonic() - begun > limit:
                    process.kill()
                    raise
    print(f"        {text}: {time.monotonic() - begun:.1f} s", flush=True)
    if status:
        raise job.Failure(f"status {status}: {' '.join(map(str, words))}")


# ---- conformance and operations ----------------------------------------------------------------


def conformance(environment, *flags):
    """The contract of every transport."""
    command([os.path.join(job.BIN, "tutti-conformance"), "--transport", "rdma", "--processes",
             "--timeout", "200", *flags], environment)


def operations(environment, *flags):
    """All operations, types and operators, bit for bit."""
    command([os.path.join(TESTS, "test_operations"), "--transport", "rdma", *flags], environment)


def uneven(environment, *flags):
    """Collectives whose blocks differ in size."""
    command([os.path.join(TESTS, "test_uneven"), "--transport", "rdma", *flags], environment)


def drawn(environment, *flags):
    """Programs drawn from a seed: calls of all kinds, on communicators that come and go."""
    command([os.path.join(TESTS, "random_programs"), "--over", "rdma", "--steps", "25",
             "--verbose", *flags], environment, limit=900)


def windows(*flags):
    """Puts and signals by the library's own calls: all of them cross the network."""
    command([os.path.join(TESTS, "test_windows"), "rdma", *flags], ONE)


def nccl_puts(*words):
    """Puts and signals by a program that knows nothing but nccl.h."""
    command([os.path.join(TESTS, "nccl_puts"), *words],
            {**ONE, "TUTTI_TRANSPORT": "rdma", "TUTTI_DEVICE": "host", "TUTTI_TIMEOUT": "60"})


def large(size, environment):
    """Every operation with 1 to 16 MiB; the benchmark compares each element."""
    for coll in ("all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "all_to_all",
                 "gather", "scatter", "sendrecv"):
        jobs = sweep(size, environment, "--coll", coll, "-b", "1M", "-e", "16M", "-f", "4", "-n",
                     "1", "-w", "0", "-T", "120")
        try:
            for rank, each in enumerate(jobs):
                status = each.wait(2 * LIMIT)
                each.check(status == 0, f"{coll}: rank {rank} ended with status {status}")
            jobs[0].check(any(job.CLEAN in line for line in jobs[0].out), f"no \"{job.CLEAN}\"")
            jobs[0].check(len(jobs[0].rows()) == 3, f"{coll}: not three sizes")
        finally:
            for each in jobs:
                each.end()


# ---- memory of a GPU, a simulated one -----------------------------------------------------------

DEVICE = {"TUTTI_DEVICE": "sim", "TUTTI_DEVICE_PATH": "staged", "TUTTI_LOG": "info"}
PLUGINS = os.path.join(TESTS, "plugins")
# soft-RoCE takes no dmabuf. Memory of the simulated device is registered by its address then, as on
# a machine with nvidia-peermem; or verbs stand in for those of an adapter that does.
BY_ADDRESS = r"registered by address, not by dmabuf: ibv_reg_dmabuf_mr with device rxe\d: Operation not supported"
BY_DMABUF = r"registered by dmabuf"
DMABUF = {"TUTTI_LIBIBVERBS": os.path.join(PLUGINS, "tti_dmabuf_verbs.so")}


def device(pattern, words, environment, limit=300):
    """A program of ours with what it logs: device memory was registered thus, and so sent."""
    begun = time.monotonic()
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          check=False, timeout=limit,
                          env={**job.clean_environment(), **ONE, **DEVICE, **environment})
    text = " ".join(map(str, words[1:]))
    print(f"        {text}: {time.monotonic() - begun:.1f} s", flush=True)
    said = done.stderr + done.stdout
    if done.returncode:
        raise job.Failure(f"status {done.returncode}: {text}\n{said[-2000:]}")
    if not re.search(pattern, said):
        raise job.Failure(f"nobody says \"{pattern}\"\n{said[-2000:]}")
    sent = [tuple(map(int, found)) for found in re.findall(
        r"inputs in device memory: (\d+) bytes copied to the host first, (\d+) sent", said)]
    print(f"        {len(sent)} ranks: {sum(each[0] for each in sent)} bytes copied to the host "
          f"first, {sum(each[1] for each in sent)} sent from where they lay", flush=True)
    if not any(direct for _, direct in sent):
        raise job.Failure("all device memory was copied to the host")


def device_sends(pattern, part, environment):
    """Which copies are left out, and what becomes of memory that is freed."""
    device(pattern, [os.path.join(TESTS, "test_gpu_send"), "rdma", part], environment)


def device_operations(pattern, environment, *flags):
    """All operations, bit for bit, on device memory."""
    device(pattern, [os.path.join(TESTS, "test_operations"), "--transport", "rdma", "--device",
                     "--few", *flags], environment)


# ---- what cannot be used -----------------------------------------------------------------------


def refuses(words, environment, *patterns):
    """A program of ours ends with an error that has the patterns."""
    done = subprocess.run([*words, os.path.join(job.BIN, "tutti-conformance"), "--transport", "rdma",
                           "--processes", "--only", "connect_again"],
                          capture_output=True, text=True, check=False, timeout=LIMIT,
                          env={**job.clean_environment(), **environment})
    said = done.stdout + done.stderr
    print(f"        {said.strip()[-400:]}", flush=True)
    if done.returncode == 0:
        raise job.Failure("it ended without an error")
    for pattern in patterns:
        if not re.search(pattern, said):
            raise job.Failure(f"it does not say \"{pattern}\"")


def no_partition():
    """An entry of the table of partition keys that is empty."""
    refuses([], {**ONE, "TUTTI_RDMA_PKEY_INDEX": "7"},
            r"port 1 of device rxe[01] has no P_Key at TUTTI_RDMA_PKEY_INDEX")


def other_namespace():
    """Devices are seen in all network namespaces, their addresses belong to one."""
    refuses(["unshare", "-n"], {}, r"port 1 of device rxe\d has no address in this network namespace")


# ---- faults ------------------------------------------------------------------------------------


def disturb(*how, cable=CABLE):
    """tc's netem on both ends of a cable; nothing: as it was."""
    for end in cable:
        subprocess.run(["tc", "qdisc", "del", "dev", end, "root"], capture_output=True,
                       check=False)
        if how:
            subprocess.run(["tc", "qdisc", "add", "dev", end, "root", "netem", *how], check=True)


def sweep(size, environment, *flags):
    """Ranks without a launcher, each with its own end to see."""
    port = job.free_port()
    return [job.Job([job.BENCH, "--transport", "rdma", *flags],
                    {**ONE, **environment, **job.by_hand(rank, size, port)})
            for rank in range(size)]


# Newer kernels' soft-RoCE may not tell that it has tried often enough (6.1's does, 6.12's does not).
GAVE_UP = "transport retry counter exceeded"
if tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 12):
    GAVE_UP += "|Work Request Flushed"
ENDLESS = ("-b", "1K", "-e", "256K", "-f", "4", "-n", "5", "-w", "1", "-N", "10000")


def endless(size, environment):
    """A sweep that has begun and does not end."""
    jobs = sweep(size, environment, *ENDLESS)
    jobs[0].until(lambda: len(jobs[0].rows()) >= 4, LIMIT, "rows of the table")
    return jobs


def each_says(jobs, but, seconds, *patterns):
    """All ranks but one end, with an error that has the patterns."""
    by = job.awake() + seconds
    for rank, each in enumerate(jobs):
        if rank == but:
            continue
        status = each.wait(max(0.1, by - job.awake()))
        each.check(status > 0, f"rank {rank} ended with status {status}, not an error's")
        said = "\n".join(each.err)
        for pattern in patterns:
            each.check(re.search(pattern, said), f"rank {rank} does not say \"{pattern}\"")
        print(f"        rank {rank}: {each.err[-1][:400]}", flush=True)


def killed():
    """A rank dies: the others name it, at once."""
    jobs = endless(3, {})
    try:
        victim = jobs[1].process.pid
        os.kill(victim, signal.SIGKILL)
        each_says(jobs, 1, 15, rf"rank 1 \([^)]*:{victim}\)")
    finally:
        for each in jobs:
            each.end()


def cut():
    """Nothing comes through any more: the error has the peer, device, port, GIDs, what to check."""
    jobs = endless(2, {"TUTTI_RDMA_OUTAGE": "1", "TUTTI_TIMEOUT": "30"})
    try:
        disturb("loss", "100%")
        each_says(jobs, None, 25, r"rank [01] \(")
        said = "\n".join(jobs[0].err + jobs[1].err)
        for pattern in (GAVE_UP, r"device rxe[01] port 1, GID 1 10\.9",
                        r"check that this rank's host is up"):
            jobs[0].check(re.search(pattern, said), f"nobody says \"{pattern}\"")
    finally:
        disturb()
        for each in jobs:
            each.end()


def rail_cut():
    """One rail of two is cut in the midst of a sweep: it goes on over the other, every byte is right,
    and what is said names the rail that was cut."""
    jobs = sweep(2, {**RAILS, "TUTTI_RDMA_OUTAGE": "1", "TUTTI_TIMEOUT": "50", "TUTTI_LOG": "warn"},
                 "-b", "8", "-e", "256K", "-f", "8", "-n", "20", "-w", "1", "-N", "4")
    try:
        jobs[0].until(lambda: len(jobs[0].rows()) >= 8, LIMIT, "rows of the table")
        disturb("loss", "100%", cable=SECOND_CABLE)
        for rank, each in enumerate(jobs):
            status = each.wait(2 * LIMIT)
            each.check(status == 0, f"rank {rank} ended with status {status}")
        jobs[0].check(any(job.CLEAN in line for line in jobs[0].out), f"no \"{job.CLEAN}\"")
        said = "\n".join(jobs[0].err + jobs[1].err)
        jobs[0].check(re.search(rf"({GAVE_UP}).*device rxe[23] port 1, GID 1 10\.9\.1.*"
                                r"goes on over other queue pairs", said),
                      "nobody names device rxe2 or rxe3")
        jobs[0].check(not re.search(rf"({GAVE_UP}).*device rxe[01] ", said),
                      "somebody names a device of the rail that was not cut")
        for line in jobs[0].err + jobs[1].err:
            print(f"        {line[:300]}", flush=True)
    finally:
        disturb(cable=SECOND_CABLE)
        for each in jobs:
            each.end()


def rails_cut():
    """Both rails are cut, one after the other: an error that names the last."""
    jobs = endless(2, {**RAILS, "TUTTI_RDMA_OUTAGE": "1", "TUTTI_TIMEOUT": "40"})
    try:
        disturb("loss", "100%", cable=SECOND_CABLE)
        disturb("loss", "100%")
        each_says(jobs, None, 35, r"rank [01] \(")
    finally:
        disturb()
        disturb(cable=SECOND_CABLE)
        for each in jobs:
            each.end()


def machine_with(near, far):
    """A description of a host: its processors and the devices `near` in one package, `far` in another."""
    nodes = [{"kind": "host", "parent": -1, "os_index": 0}]
    for k, names in enumerate((near, far)):
        package = len(nodes)
        nodes.append({"kind": "package", "parent": 0, "os_index": k})
        nodes.append({"kind": "numa", "parent": package, "os_index": k})
        nodes += [{"kind": "nic", "parent": package + 1, "name": name} for name in names]
        nodes.append({"kind": "core", "parent": package + 1, "os_index": k})
        core = len(nodes) - 1
        nodes += [{"kind": "pu", "parent": core, "os_index": cpu}
                  for cpu in (range(16) if k == 0 else [99])]
    return json.dumps({"format": "tutti-topology 1", "source": "made up", "nodes": nodes, "links": []})


def sent(end):
    """Bytes that an end of a cable has sent."""
    with open(f"/sys/class/net/{end}/statistics/tx_bytes", encoding="ascii") as file:
        return int(file.read())


PAIRS = (("rxe0", "rxe1"), ("rxe2", "rxe3"))  # of devices, by the cable


def near_jobs(near, choice, outage, flags):
    """Two ranks of two hosts, which have a device at each cable; that of cable near[rank] is near."""
    port, paths = job.free_port(), []
    for rank, mine in enumerate(near):
        paths.append(f"/tmp/near{rank}.json")
        with open(paths[rank], "w", encoding="ascii") as file:
            file.write(machine_with(PAIRS[mine], PAIRS[1 - mine]))
    return [job.Job([job.BENCH, "--transport", "rdma", *flags],
                    {**job.by_hand(rank, 2, port), "TUTTI_HOST_ID": "ab"[rank], "TUTTI_LOG": "info",
                     "TUTTI_RDMA_DEVICES": f"{PAIRS[0][rank]},{PAIRS[1][rank]}",
                     "TUTTI_NIC_NEAR": choice, "TUTTI_TOPOLOGY": paths[rank],
                     "TUTTI_RDMA_OUTAGE": outage, "TUTTI_TIMEOUT": "50"}) for rank in range(2)]


def near_and_far_cut():
    """Nothing comes through any more, by the near device or by that in reserve: each is tried, and
    again, and then there is an error, after twice the outage, or so."""
    jobs = near_jobs((0, 0), "auto", "3.5", ENDLESS)
    try:
        jobs[0].until(lambda: len(jobs[0].rows()) >= 4, LIMIT, "rows of the table")
        for cable in (SECOND_CABLE, CABLE):
            disturb("loss", "100%", cable=cable)
        cut_at = job.awake()
        each_says(jobs, None, 45, r"rank [01] \(")
        took = job.awake() - cut_at
        jobs[0].check(7 < took < 20, f"the ranks ended {took:.1f} s after the cut")
        print(f"        the ranks ended {took:.1f} s after the cut", flush=True)
        said = "\n".join(jobs[0].err)
        for pattern in (r"goes on over other queue pairs", r"the connection is made again"):
            jobs[0].check(re.search(pattern, said), f"nobody says \"{pattern}\"")
    finally:
        for cable in (CABLE, SECOND_CABLE):
            disturb(cable=cable)
        for each in jobs:
            each.end()


def end_well(jobs, words):
    """All ranks end in order, with no wrong element; what rank 0 said of this is shown."""
    for rank, each in enumerate(jobs):
        status = each.wait(2 * LIMIT)
        each.check(status == 0, f"rank {rank} ended with status {status}")
    jobs[0].check(any(job.CLEAN in line for line in jobs[0].out), f"no \"{job.CLEAN}\"")
    for line in jobs[0].err:
        if re.search(words, line):
            print(f"        {line[:250]}", flush=True)


def near_comes_back():
    """The near cable is cut for longer than the first trial takes, and put together again, twice: the
    far one carries meanwhile, and then the near one alone, and every byte is right."""
    jobs = near_jobs((0, 0), "auto", "1",
                     ("-b", "8", "-e", "256K", "-f", "8", "-n", "20", "-w", "1", "-N", "40"))

    def said(text):
        return [sum(text in line for line in each.err) for each in jobs]

    def carried(rows):
        """Bytes that each cable's first end sends while so many rows of the table come."""
        before, until = [sent(first) for first, _ in (CABLE, SECOND_CABLE)], len(jobs[0].rows()) + rows
        jobs[0].until(lambda: len(jobs[0].rows()) >= until, LIMIT, "rows of the table")
        bytes_sent = [sent(first) - was for (first, _), was in zip((CABLE, SECOND_CABLE), before)]
        print(f"        sent by e0 {bytes_sent[0]} bytes, by e2 {bytes_sent[1]}", flush=True)
        return bytes_sent

    try:
        jobs[0].until(lambda: len(jobs[0].rows()) >= 6, LIMIT, "rows of the table")
        for cut_before in range(2):
            lost, back = said("goes on over other queue pairs"), said("carries to rank")
            disturb("loss", "100%")
            jobs[0].until(lambda: all(now > was for now, was in zip(
                said("goes on over other queue pairs"), lost)), LIMIT, "word of other queue pairs")
            if not cut_before:
                jobs[0].until(lambda: said("does not carry to rank")[0], LIMIT,
                              "word of a trial that failed")
            near, far = carried(6)
            jobs[0].check(near < far / 20, "the cable that is cut carried")
            disturb()
            jobs[0].until(lambda: all(now > was for now, was in zip(said("carries to rank"), back)),
                          LIMIT, "word that the near device carries again")
            near, far = carried(6)
            jobs[0].check(far < near / 20, "the far cable carried, and the near one is back")
        end_well(jobs, r"goes on over|carry to rank|carries to rank|made again")
        jobs[0].check(not sum(said("the connection is made again")), "the connection was lost")
    finally:
        disturb()
        for each in jobs:
            each.end()


def near_rail(near, choice, other=None, cables=(CABLE, SECOND_CABLE)):
    """Two hosts with two devices each. The ranks go by those that are near; these cut, by the others.
    Where another rail is near to rank 1, by both."""
    both = choice == "off" or other is not None
    before = [sent(first) for first, _ in cables]
    jobs = near_jobs((near, near if other is None else other), choice, "1",
                     ("-b", "8", "-e", "256K", "-f", "8", "-n", "20", "-w", "1", "-N", "3"))
    try:
        jobs[0].until(lambda: len(jobs[0].rows()) >= 8, LIMIT, "rows of the table")
        bytes_sent = [sent(first) - was for (first, _), was in zip(cables, before)]
        print(f"        sent by e0 {bytes_sent[0]} bytes, by e2 {bytes_sent[1]}", flush=True)
        if both:
            jobs[0].check(min(bytes_sent) > max(bytes_sent) / 4, "not both carried their share")
        else:
            jobs[0].check(bytes_sent[1 - near] < bytes_sent[near] / 20, "the far one carried")
            disturb("loss", "100%", cable=cables[near])
        end_well(jobs, r"goes by|in reserve|goes on over")
        said = "\n".join(jobs[0].err)
        if choice != "off":
            jobs[0].check(re.search(rf"RDMA: this rank goes by nic {PAIRS[near][0]}", said),
                          "it does not say which is near")
            jobs[0].check(both or "goes on over other queue pairs" in said,
                          "no word of other queue pairs")
    finally:
        disturb(cable=cables[near])
        for each in jobs:
            each.end()


def forget(cable=CABLE):
    """Both ends have to ask for each other's address again."""
    for end in cable:
        subprocess.run(["ip", "neigh", "flush", "dev", end], check=True)


UNANSWERED = r"ibv_modify_qp: Connection timed out.*; it is tried again"


def unanswered(job_of):
    """Has a rank said that its neighbour does not answer?"""
    return any(re.search(UNANSWERED, line) for line in job_of.err)


def slow_neighbour():
    """Nobody answers when the ranks first ask for their neighbours: they ask again."""
    disturb("loss", "100%")
    forget()
    jobs = sweep(2, {"TUTTI_RDMA_OUTAGE": "30", "TUTTI_TIMEOUT": "100", "TUTTI_LOG": "info"},
                 "-b", "8", "-e", "256K", "-f", "8", "-n", "5", "-w", "1")
    try:
        for each in jobs:
            each.until(lambda each=each: unanswered(each), LIMIT, "word that nobody answers")
        disturb()
        end_well(jobs, UNANSWERED)
    finally:
        disturb()
        for each in jobs:
            each.end()


def again(environment, cuts=3, forgets=False):
    """The cable carries nothing for longer than a device waits, again and again: each time the
    connection is made again, and every byte is right. Once that is said, the cable has to be whole
    again before the device has waited once more, which with this outage is 3.8 s. Or else
    neighbours are forgotten, and it is mended once one has not answered."""
    jobs = sweep(2, {**environment, "TUTTI_RDMA_OUTAGE": "20" if forgets else "4",
                     "TUTTI_TIMEOUT": "90" if forgets else "50",
                     "TUTTI_LOG": "info" if forgets else "warn"},
                 "-b", "8", "-e", "256K", "-f", "8", "-n", "20", "-w", "1", "-N", str(2 * cuts))

    def said(text):
        return sum(text in line for each in jobs for line in each.err)

    try:
        for number in range(cuts):
            rows = len(jobs[0].rows())
            jobs[0].until(lambda: len(jobs[0].rows()) >= rows + 4, LIMIT, "rows of the table")
            before = said("the connection is made again")
            disturb("loss", "100%")
            if forgets:
                forget()
            jobs[0].until(lambda: said("the connection is made again") > before, LIMIT,
                          "word that the connection is made again")
            if forgets:
                jobs[0].until(lambda: any(map(unanswered, jobs)), LIMIT, "word that nobody answers")
            disturb()
            print(f"        cut {number + 1}: {jobs[0].err[-1][:200]}", flush=True)
        for rank, each in enumerate(jobs):
            status = each.wait(2 * LIMIT)
            each.check(status == 0, f"rank {rank} ended with status {status}")
        jobs[0].check(any(job.CLEAN in line for line in jobs[0].out), f"no \"{job.CLEAN}\"")
        jobs[0].check(said("was made again") >= 2 * cuts, "not both ranks say each time that it was")
    finally:
        disturb()
        for each in jobs:
            each.end()


REORDER = ("reorder", "25%", "50%")


def lossy(environment, *how):
    """Lost and reordered packets are the devices' affair: the data are right."""
    disturb("delay", "1ms", "loss", "1%", *how)
    jobs = sweep(2, {"TUTTI_RDMA_OUTAGE": "3", "TUTTI_LOG": "info", **environment}, "-b", "8", "-e",
                 "256K", "-f", "8", "-n", "5", "-w", "1")
    try:
        for rank, each in enumerate(jobs):
            status = each.wait(LIMIT)
            for line in each.err:
                if "made again" in line or "in pieces" in line:
                    print(f"        {line[:250]}", flush=True)
            each.check(status == 0, f"rank {rank} ended with status {status}")
        jobs[0].check(any(job.CLEAN in line for line in jobs[0].out), f"no \"{job.CLEAN}\"")
    finally:
        disturb()
        for each in jobs:
            each.end()


def slow():
    """A rank that does nothing for longer than the outage allowed: no connection breaks by it."""
    jobs = endless(2, {"TUTTI_RDMA_OUTAGE": "1"})
    try:
        os.kill(jobs[1].process.pid, signal.SIGSTOP)
        time.sleep(4)
        rows = len(jobs[0].rows())
        os.kill(jobs[1].process.pid, signal.SIGCONT)
        jobs[0].until(lambda: len(jobs[0].rows()) >= rows + 3, LIMIT, "further rows of the table")
    finally:
        for each in jobs:
            each.end()


def mtu_hole():
    """The cable takes small packets only, as a switch on the way might: an error says so, before the
    operation's deadline."""
    jobs = sweep(2, {"TUTTI_RDMA_OUTAGE": "1", "TUTTI_TIMEOUT": "50", "TUTTI_LOG": "warn"}, *ENDLESS)
    ends = []
    try:
        jobs[0].until(lambda: len(jobs[0].rows()) >= 4, LIMIT, "rows of the table")
        begun = time.monotonic()
        ends += [drop_large.DropLarge(end, 1600) for end in CABLE]
        each_says(jobs, None, 45, r"rank [01] \(")
        print(f"        after {time.monotonic() - begun:.1f} s", flush=True)
        said = "\n".join(jobs[0].err + jobs[1].err)
        for pattern in (r"small messages get through, and packets of 4096 bytes do not",
                        r"smaller MTU", r"device rxe[01] port 1, GID 1 10\.9"):
            jobs[0].check(re.search(pattern, said), f"nobody says \"{pattern}\"")
    finally:
        for each in ends + jobs:
            each.end()


FAULTS = os.path.join(os.path.dirname(HERE), "fault")


def table():
    """The faults of ranks that ./dev faults has for other transports; a row each, as JSON behind
    ROW, which `./dev rdma table` gathers."""
    sys.path.insert(0, FAULTS)
    import faults_ranks
    wrong = []
    for fault, transport, _ in faults_ranks.rdma_cases():
        done = subprocess.run([sys.executable, os.path.join(FAULTS, "faults.py"), "--run", fault,
                               transport], capture_output=True, text=True, check=False,
                              env={**os.environ, "TUTTI_ISOLATED": "hosts"}, timeout=150)
        if not done.stdout:
            raise job.Failure(f"{fault}: {done.stderr[-300:]}")
        row = json.loads(done.stdout.splitlines()[-1])
        print(f"ROW {json.dumps(row)}", flush=True)
        wrong += [f"{fault}: {text}" for text in row.get("wrong", [])]
    if wrong:
        raise job.Failure("\n".join(wrong))


# ---- delay: messages that wait for one another ---------------------------------------------------

DELAY_MS = 20
# Of all-reduce between two ranks: how often somebody waits for what crosses the cable.
HOPS = {"one_shot": 1, "recursive_doubling": 1, "two_shot": 2, "hierarchical": 2,
        "hierarchical_halving": 2, "rabenseifner": 2, "ring": 2}


def judge_delay(first, transport, chosen):
    """No small all-reduce takes more than its hops and a tenth. A figure is the mean of eight after
    one another (of two ranks that wait for each other, one may find every second operation done
    when it begins it), and the median of five such."""
    rows = [line.split() for line in first.rows()]
    wrong = []
    for size in sorted({int(cells[0]) for cells in rows}):
        mine = [cells for cells in rows if int(cells[0]) == size]
        first.check(len(mine) == 5, f"{len(mine)} rows of {size} bytes, not 5")
        ms, name = statistics.median(float(cells[5]) / 1000 for cells in mine), mine[0][-1]
        print(f"        | {transport} | {size} | {name}{' (chosen)' if chosen else ''} | "
              f"{HOPS[name]} | {ms:.2f} |", flush=True)
        # Below the delay it did not go by the cable.
        if not DELAY_MS <= ms <= 1.1 * DELAY_MS * HOPS[name]:
            wrong.append(f"{size} B by {name}: {ms:.2f} ms, not {DELAY_MS} to "
                         f"{1.1 * DELAY_MS * HOPS[name]:.0f}")
    return wrong


def delayed(transport, names):
    """Two ranks, each with its end of a long cable."""
    port, wrong = job.free_port(), []
    disturb("delay", f"{DELAY_MS}ms")
    try:
        for name in names:
            flags = ["--transport", transport, "-b", "8", "-e", "8K", "-f", "32", "-n", "8", "-w",
                     "2", "-N", "5", *([] if name == "chosen" else ["--algo", f"all_reduce={name}"])]
            jobs = [job.Job([job.BENCH, *flags],
                            {**job.by_hand(rank, 2, port), **ONE, "TUTTI_HOST_ID": "ab"[rank],
                             "TUTTI_IFNAME": f"={CABLE[rank]}"}) for rank in range(2)]
            try:
                for each in jobs:
                    each.check(each.wait(LIMIT) == 0, "the benchmark failed")
                wrong += judge_delay(jobs[0], transport, name == "chosen")
            finally:
                for each in jobs:
                    each.end()
    finally:
        disturb()
    if wrong:
        raise job.Failure("\n".join(wrong))


# ---- bandwidth, beside perftest ----------------------------------------------------------------


def listens(server, port):
    """Wait until somebody listens on a TCP port: perftest does not say that it does."""
    by = time.monotonic() + LIMIT
    while True:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file]
            if any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows[1:]):
                return
        if server.poll() is not None:
            raise job.Failure(f"{server.args[0]} ended with status {server.returncode} before it "
                              f"listened: {server.stdout.read()[-500:]}")
        if time.monotonic() > by:
            raise job.Failure(f"{server.args[0]} does not listen on port {port} after {LIMIT:.0f} s")
        time.sleep(0.02)


def perftest(tool, size, count, pairs):
    """One of perftest's programs over each pair of devices at a time: its figures, in order."""
    ends, rows = [], []

    def end(number, device, *peer):
        flags = ["-x", "1", "-F", "-s", str(size), "-n", str(count), "-p", str(18600 + number)]
        ends.append(subprocess.Popen([tool, *flags, "-d", f"rxe{device}", *peer],
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return ends[-1]

    try:
        for number in range(pairs):
            listens(end(number, 2 * number), 18600 + number)
        for each in [end(number, 2 * number + 1, f"10.9.{number}.1") for number in range(pairs)]:
            out, _ = each.communicate(timeout=LIMIT)
            rows += [line.split() for line in out.splitlines()
                     if re.match(rf"\s*{size}\s+{count}\s", line)]
        if len(rows) != pairs:
            raise job.Failure(f"{tool} printed {len(rows)} rows, not {pairs}: {out[-500:]}")
        for each in ends[:pairs]:
            each.communicate(timeout=LIMIT)
    finally:
        for each in ends:
            each.kill()
            each.wait()
            each.stdout.close()
    return rows


def figures(tool, size, count, pairs, column):
    """A column of what it says. Where its guess at the processor's clock fails, that is 0 or "inf"."""
    for _ in range(3):
        told = [float(cells[column]) for cells in perftest(tool, size, count, pairs)]
        if all(0 < each < math.inf for each in told):
            return told
    raise job.Failure(f"{tool} gave no figures three times in a row: {told}")


def theirs_bandwidth(size, count, pairs, busy=False):
    """MB/s, summed over the pairs. Busy: while another program computes, as one that polls would."""
    if busy:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            try:
                return theirs_bandwidth(size, count, pairs)
            finally:
                other.kill()
    return 1.048576 * sum(figures("ib_write_bw", size, count, pairs, 3))


def theirs_latency(size, count):
    """Typical time one way, us."""
    return figures("ib_write_lat", size, count, 1, 4)[0]


def ours(coll, size, count, environment):
    """us of an operation between two ranks: in a batch of `count`, and the median of single ones."""
    jobs = sweep(2, environment, "--coll", coll, "-b", str(size), "-e", str(size), "-n", str(count),
                 "-w", "2", "-c", "0")
    try:
        for each in jobs:
            each.check(each.wait(LIMIT) == 0, "the benchmark failed")
        cells = jobs[0].rows()[0].split()
        return float(cells[5]), float(cells[-3])
    finally:
        for each in jobs:
            each.end()


def ping_pong(size, count):
    """us one way: half of the time that a message takes there and back, the median."""
    port = job.free_port()
    jobs = [job.Job([os.path.join(TESTS, "tutti-ping-pong"), str(size), str(count)],
                    {"TUTTI_TRANSPORT": "rdma", **ONE, **job.by_hand(rank, 2, port)})
            for rank in range(2)]
    try:
        for each in jobs:
            each.check(each.wait(LIMIT) == 0, "tutti-ping-pong failed")
        return float(jobs[0].out[0].split()[-2])
    finally:
        for each in jobs:
            each.end()


def median(values):
    """The middle one, and the spread of all around it in percent."""
    middle = statistics.median(values)
    return middle, 100 * (max(values) - min(values)) / middle


def row(what, size, ours_now, theirs_now, higher_wins):
    """A line of the table: medians, and the median of the ratios of the rounds."""
    ratios = [mine / other if higher_wins else other / mine
              for mine, other in zip(ours_now, theirs_now)]
    print(f"| {what} | {size} | {median(ours_now)[0]:.1f} | {median(theirs_now)[0]:.1f} | "
          f"{median(ratios)[0]:.2f} | {median(ratios)[1]:.0f}% |", flush=True)


ROUNDS = 6
HEAD = ("| what | size | ours | perftest | ours better by | spread |\n"
        "|---|---:|---:|---:|---:|---:|")


def latency(size):
    """Ours and perftest's in turn, a message there and back."""
    pairs = [(ping_pong(size, 200), theirs_latency(size, 200)) for _ in range(ROUNDS)]
    print(HEAD)
    row("time one way, us", size, [a for a, _ in pairs], [b for _, b in pairs], False)


def bandwidth(rails, size, count):
    """Broadcasts between two ranks are a stream one way, as ib_write_bw is: as many after one another
    as that has writes. Then one alone, from its call to its last byte. A rank that receives polls,
    while perftest's receiver sleeps: so perftest once more beside a program that computes."""
    environment = RAILS if rails > 1 else ONE
    rounds = [(*ours("broadcast", size, count, environment), theirs_bandwidth(size, count, rails),
               theirs_bandwidth(size, count, rails, True)) for _ in range(ROUNDS)]
    theirs, busy = [each[2] for each in rounds], [each[3] for each in rounds]
    what = f"{rails} rail{'s' * (rails > 1)}, MB/s"
    print(HEAD)
    row(f"stream, {what}", size, [size / each[0] for each in rounds], theirs, True)
    row(f"stream, {what}; perftest with a processor less", size,
        [size / each[0] for each in rounds], busy, True)
    row(f"one operation, {what}", size, [size / each[1] for each in rounds], theirs, True)


# ---- the groups --------------------------------------------------------------------------------

GROUPS = {
    "conformance": [
        ("conformance, processes", lambda: conformance(ONE)),
    ],
    "rails": [
        ("conformance over two rails of two queue pairs", lambda: conformance(RAILS)),
        ("conformance with a completion queue that grows", lambda: conformance(
            {**ONE, "TUTTI_RDMA_SLOTS": "512", "TUTTI_RDMA_SLOT_BYTES": "4K"}, "--only", "e_")),
        ("no partition key at the index", no_partition),
        ("addresses of another network namespace", other_namespace),
        ("conformance with small slots", lambda: conformance(
            {**ONE, "TUTTI_RDMA_SLOTS": "2", "TUTTI_RDMA_SLOT_BYTES": "4K"}, "--only", "e_")),
        ("operations over two rails", lambda: operations(RAILS, "--ranks", "3", "--processes")),
    ],
    "operations": [
        ("operations, 2 ranks", lambda: operations(ONE, "--ranks", "2", "--processes")),
        ("operations, 3 ranks, memory of malloc", lambda: operations(
            ONE, "--ranks", "3", "--processes", "--malloc")),
        ("operations, 4 ranks, registered memory", lambda: operations(
            ONE, "--ranks", "4", "--processes", "--register")),
        ("operations, 3 threads, three lanes", lambda: operations(
            ONE, "--ranks", "3", "--lanes", "3")),
        ("operations of 1 to 16 MiB, 2 ranks", lambda: large(2, ONE)),
        ("operations of 1 to 16 MiB, 4 ranks over two rails", lambda: large(4, RAILS)),
        ("operations, large", lambda: operations(ONE, "--ranks", "2", "--processes", "--big")),
        ("uneven blocks, 4 ranks", lambda: uneven(ONE, "--ranks", "4", "--processes", "--rounds", "8")),
        ("uneven blocks, large", lambda: uneven(ONE, "--ranks", "3", "--processes", "--big")),
        ("programs drawn from a seed", lambda: drawn(ONE, "--programs", "12")),
        ("programs drawn from a seed, over two rails", lambda: drawn(
            RAILS, "--seed", "50", "--programs", "6")),
        ("programs drawn from a seed, with devices", lambda: drawn(
            ONE, "--seed", "100", "--programs", "6", "--device")),
        ("puts and signals, 3 threads", lambda: windows("3")),
        ("puts and signals, 3 processes", lambda: windows("3", "--processes")),
        *((f"puts by nccl.h: {' '.join(words)}", lambda words=words: nccl_puts(*words))
          for words in (("everything", "2"), ("everything", "3", "--processes"),
                        ("everything", "2", "--processes", "--malloc"),
                        ("dies", "3", "--processes"))),
    ],
    "device": [
        *((f"device memory by {way}: {part}",
           lambda pattern=pattern, part=part, environment=environment:
           device_sends(pattern, part, environment))
          for way, pattern, environment, parts in (
              ("address", BY_ADDRESS, {}, ("collectives", "freed", "captured")),
              ("dmabuf", BY_DMABUF, DMABUF, ("collectives", "unreadable", "freed", "captured")))
          for part in parts),
        ("operations on device memory by address, 3 threads", lambda: device_operations(
            BY_ADDRESS, {}, "--ranks", "3")),
        ("operations on device memory by dmabuf, 2 processes", lambda: device_operations(
            BY_DMABUF, DMABUF, "--ranks", "2", "--processes")),
        ("operations on device memory over two rails", lambda: device_operations(
            BY_ADDRESS, RAILS, "--ranks", "2", "--big")),
    ],
    "faults": [
        ("a rank killed", killed),
        ("the cable cut", cut),
        ("one rail of two cut", rail_cut),
        ("both rails cut", rails_cut),
        ("the near rail, and the far one when it is cut", lambda: near_rail(0, "auto")),
        ("the near rail is the second one", lambda: near_rail(1, "auto")),
        ("the near rail and the far one cut", near_and_far_cut),
        ("the near rail comes back", near_comes_back),
        ("two rails, each near to one rank", lambda: near_rail(0, "auto", other=1)),
        ("two rails, none of them near", lambda: near_rail(0, "off")),
        ("the cable cut for a while", lambda: again({})),
        ("the cable cut for a while, two queue pairs", lambda: again({"TUTTI_RDMA_QPS": "2"}, 2)),
        ("the cable cut, and the neighbours forgotten", lambda: again({}, 1, forgets=True)),
        ("neighbours that do not answer at first", slow_neighbour),
        ("1% loss", lambda: lossy({})),
        ("1% loss and reordering", lambda: lossy({}, *REORDER)),
        ("1% loss and reordering, small fragments", lambda: lossy(
            {"TUTTI_RDMA_SLOT_BYTES": "16K"}, *REORDER)),
        ("a stopped rank", slow),
        ("a path that takes small packets only", mtu_hole),
    ],
    "table": [("the table of faults", table)],
    "delay": [
        (f"20 ms between two hosts, {transport}, {hops}",
         lambda transport=transport, names=names: delayed(transport, names))
        for transport in ("tcp", "rdma")
        for hops, names in (("chosen", ["chosen"]),
                            ("one hop", ["one_shot", "recursive_doubling"]),
                            ("two hops", ["two_shot", "ring"]))
    ],
    "bench": [
        *((f"bench: {size} B beside ib_write_lat", lambda size=size: latency(size))
          for size in (8, 1024, 16384)),
        *((f"bench: {size} B beside ib_write_bw, rails: {rails}",
           lambda rails=rails, size=size, count=count: bandwidth(rails, size, count))
          for rails in (1, 2)
          for size, count in ((65536, 200), (1 << 20, 40), (4 << 20, 12), (16 << 20, 5))),
    ],
    "short": [
        ("sends out of device memory by address", lambda: device_sends(BY_ADDRESS, "freed", {})),
        ("sends out of device memory by dmabuf", lambda: device_sends(BY_DMABUF, "unreadable",
                                                                      DMABUF)),
        ("conformance but for the longest", lambda: conformance(
            ONE, "--except", "sleeping_ping_pong")),
        ("operations, 3 ranks", lambda: operations(RAILS, "--ranks", "3", "--processes", "--few")),
        ("a rank killed", killed),
        ("the cable cut", cut),
        ("the cable cut for a while, once", lambda: again({}, 1)),
        ("the near rail, and the far one when it is cut", lambda: near_rail(1, "auto")),
        ("neighbours that do not answer at first", slow_neighbour),
    ],
}


def main():
    """Run the groups; 0 when all passed."""
    cases = []
    for word in sys.argv[1:] or ["short"]:
        cases += GROUPS.get(word) or [case for group in GROUPS.values() for case in group
                                      if word in case[0]]
    failed = 0
    for name, run in cases:
        print(f"  ...   {name}", flush=True)
        begun = time.monotonic()
        try:
            run()
            print(f"  ok    {name} ({time.monotonic() - begun:.1f} s)", flush=True)
        except (job.Failure, subprocess.SubprocessError) as failure:
            failed += 1
            print(f"  FAIL  {name}\n{failure}", flush=True)
    print(f"soft-RoCE: {len(cases)} cases, {failed} failed")
    return failed > 0 or not cases


sys.exit(main())
