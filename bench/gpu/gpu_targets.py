"""What is asked of Tutti on a GPU (the targets), and what a report's figures say to it: met, missed by how
much, or not measured. Used by gpu_report, which measures; figures come in as it writes them to JSON."""

FLOOR_SHARE, SMALL_US, PROCESS_FACTOR, ALONE_US, STEP_SHARE = 0.8, 10.0, 2.0, 3.0, 0.03
LARGE, SMALL, PROCESSES_FROM = 256 << 20, 8 << 10, 64 << 20
RANKS = (2, 3, 4, 8)
ALONE = ("all_reduce", "broadcast", "all_gather", "reduce_scatter")
# Programs made for NCCL, with so many processes.
CLIENTS, CLIENT_RANKS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "sendrecv", "alltoall",
                         "torch_ddp", "torch_fsdp"), (2, 4)
# The kind of a sweep whose ranks are processes that map each other's buffers (TUTTI_DEVICE_MAP).
MAPPED = "processes, mapped"


def floor_us(size, ranks, gpus, copy_gbps):
    """An all-reduce of `size` bytes a rank moves 2 * size through memory for each rank: one read of what it
    is given, one write of the result. Ranks that share a GPU share its bandwidth."""
    if not copy_gbps:
        return None
    sharers = -(-ranks // max(gpus, 1))
    return 2e-3 * size * sharers / copy_gbps


def copies(report):
    """Microseconds of a copy by the driver, by size; and GB/s, read and written, of the largest, which no cache
    holds."""
    lines = sorted((line for line in report["bench"]["lines"] if line["what"] == "copy by the driver"),
                   key=lambda line: line["bytes"])
    return {line["bytes"]: line["us"] for line in lines}, lines[-1].get("GBps", 0) if lines else 0


def sweep_of(report, ranks, kind, graph, many=False, collective="all_reduce"):
    """Microseconds of a collective by size; of several sweeps alike, the last has the word. many: of several
    operations in a graph."""
    found = {}
    for sweep in report["sweeps"]:
        if (sweep["collective"], sweep["ranks"], sweep["kind"], sweep["graph"],
                sweep.get("operations", 1) > 1) == (collective, ranks, kind, graph, many):
            found.update({row["size"]: row["us"] for row in sweep["rows"]})
    return found


def verdict(target, states, details):
    """states: True (met), False (missed), None (not measured), one a part of the target."""
    if not states or None in states:
        word = "missed" if False in states else "not measured"
    else:
        word = "met" if all(states) else "missed"
    return {"target": target, "verdict": word, "details": details}


def correct(report):
    states, details = [], []
    for kind in ("threads", "processes"):
        for ranks in RANKS:
            name = f"every operation, {ranks} {kind}"
            found = [test for test in report["tests"] if test["test"] == name]
            passed = found[0]["passed"] if found else None
            states.append(passed)
            details.append(f"{ranks} {kind}: " + ("not run" if passed is None else "correct" if passed else "FAILED"))
    return verdict("every operation is correct for 2, 3, 4 and 8 ranks that share the GPU, as threads and as "
                   "processes", states, details)


def large(report):
    rows, bandwidth = sweep_of(report, 4, "threads", False), copies(report)[1]
    floor = floor_us(LARGE, 4, report["gpus"], bandwidth)
    target = f"all-reduce of 256 MiB a rank, 4 ranks as threads: at least {FLOOR_SHARE:.0%} of the floor"
    if LARGE not in rows or not floor:
        return verdict(target, [None], [])
    share = floor / rows[LARGE]
    return verdict(target, [share >= FLOOR_SHARE],
                   [f"{rows[LARGE]:.1f} us, floor {floor:.1f} us at {bandwidth:.0f} GB/s of copy: {share:.1%}" +
                    ("" if share >= FLOOR_SHARE else f", missed by {FLOOR_SHARE - share:.1%} of the floor")])


def small(report):
    states, details = [], []
    for ranks in RANKS:
        us, each = (sweep_of(report, ranks, "threads", True, many).get(SMALL) for many in (True, False))
        states.append(None if us is None else us < SMALL_US)
        if us is not None:
            details.append(f"{ranks} ranks: {us:.2f} us" +
                           ("" if us < SMALL_US else f", missed by {us - SMALL_US:.2f} us") +
                           ("" if each is None else f" ({each:.2f} us with a graph for each)"))
    return verdict(f"all-reduce of 8 KiB under {SMALL_US:g} us with graph replay, as threads", states, details)


def processes(report, kind="processes"):
    states, details = [], []
    for ranks in RANKS:
        threads = sweep_of(report, ranks, "threads", False)
        apart = sweep_of(report, ranks, kind, False)
        sizes = [size for size in threads if size >= PROCESSES_FROM and size in apart]
        states += [None] if not sizes else []
        for size in sizes:
            factor = apart[size] / threads[size]
            states.append(factor <= PROCESS_FACTOR)
            details.append(f"{ranks} ranks, {size >> 20} MiB: {apart[size]:.0f} us against {threads[size]:.0f} us,"
                           f" {factor:.2f} times" +
                           ("" if factor <= PROCESS_FACTOR else
                            f", missed by {factor - PROCESS_FACTOR:.2f}"))
    return verdict(f"{kind} within {PROCESS_FACTOR:g} times of threads at 64 MiB and above", states, details)


def mapped(report):
    return processes(report, MAPPED)


def alone(report):
    states, details = [], []
    by_driver = copies(report)[0]
    for collective in ALONE:
        rows = sweep_of(report, 1, "threads", False, collective=collective)
        sizes = sorted(set(rows) & set(by_driver))
        states += [None] if not sizes else []
        for size in sizes:
            over = rows[size] - by_driver[size]
            states.append(over <= ALONE_US)
            details.append(f"{collective} of {size} bytes: {rows[size]:.2f} us, copy {by_driver[size]:.2f} us" +
                           ("" if over <= ALONE_US else f", missed by {over - ALONE_US:.2f} us"))
    return verdict(f"one rank alone: no slower than cudaMemcpyAsync plus {ALONE_US:g} us", states, details)


def clients(report):
    """By nccl_clients' own lines: "passed NAME_RANKS: ...", "FAILED NAME_RANKS: ..."."""
    lines = (report.get("clients") or {}).get("output", "").splitlines()
    said = {line.split()[1].rstrip(":"): line for line in lines if line.startswith(("passed ", "FAILED "))}
    states, details = [], []
    for name in CLIENTS:
        for ranks in CLIENT_RANKS:
            line = said.get(f"{name}_{ranks}")
            states.append(None if line is None else line.startswith("passed"))
            if line is None or not states[-1]:
                details.append(f"{name}, {ranks} processes: " + ("not run" if line is None else "FAILED"))
    ours, stock = step_ms(said.get("torch_ddp_1")), step_ms(next((line for line in lines if line.startswith("stock NCCL:")), None))
    states.append(None if not ours or not stock else ours <= stock * (1 + STEP_SHARE))
    details.append("a step of one process: not measured beside stock NCCL" if states[-1] is None else
                   f"a step of one process: {ours:.3f} ms, with stock NCCL {stock:.3f} ms, {ours / stock:.3f} times")
    return verdict(f"nccl-tests and PyTorch (DDP, FSDP) with 2 and 4 processes on libnccl.so.2, one process within "
                   f"{STEP_SHARE:.0%} of stock NCCL", states, details)


def step_ms(line):
    """Of "... 12.345 ms a step ..."."""
    words = (line or "").split()
    return float(words[words.index("ms") - 1]) if "ms" in words else None


def verdicts(report):
    return [ask(report) for ask in (correct, large, small, processes, mapped, alone, clients)]


def text_of(report):
    lines = ["Targets" + (" (simulated: the times say nothing)" if report["device"] == "sim" else "")]
    for found in report["targets"]:
        lines.append(f"  {found['verdict'].upper():<13} {found['target']}")
        lines += [f"  {'':<13}   {detail}" for detail in found["details"]]
    return lines


def sweeps_text(report):
    bandwidth = copies(report)[1]
    lines = ["\nallreduce_bench (float sum, out of place; floor: 2 x size a rank at the copy bandwidth; sendrecv: "
             "each rank sends to the next)",
             f"  {'':<10} {'ranks':<20} {'graph':>5} {'size':>12} {'us':>11} {'floor us':>10} {'of floor':>9} {'wrong':>6}  how it went"]
    for sweep in report["sweeps"]:
        who = f"{sweep['ranks']} {sweep['kind']}" + (" x " + str(sweep["operations"]) if sweep.get("operations", 1) > 1 else "")
        if not sweep["passed"]:
            state = "left out" if sweep["passed"] is None else "FAILED"
            lines.append(f"  {sweep['collective']:<10} {who:<20} {'yes' if sweep['graph'] else 'no':>5} {state}")
            lines += ["    | " + line for line in sweep["output"].splitlines()[-15:]]
        for row in sweep["rows"]:
            floor = floor_us(row["size"], sweep["ranks"], report["gpus"], bandwidth)
            share = f"{floor / row['us']:9.1%}" if floor and row["us"] else f"{'':>9}"
            lines.append(f"  {sweep['collective']:<10} {who:<20} {'yes' if sweep['graph'] else 'no':>5} {row['size']:>12} {row['us']:>11.2f} "
                         f"{floor if floor else 0:>10.2f} {share} {row['wrong']:>6}  {row.get('algorithm', '')}")
    return lines
