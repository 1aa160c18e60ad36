"""What PyTorch sees over backend "nccl" when a rank dies, ranks make different calls, or the survivors go on:
each case starts its own ranks, all on one GPU, and looks at what they say. A line for each case; the exit
status is not 0 if one was not as it must be. Run by nccl_clients, or:

    LD_PRELOAD=build/nccl/libnccl.so.2 python bench/gpu/torch_failures.py [CASE...]

Python 3.10 or later."""

import datetime
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

RANKS, PATIENCE = 3, 80


def main():
    import torch.distributed as dist
    without = {}
    if "fake" in os.environ.get("TUTTI_LIBCUDA", ""):
        without["killed_while_copying"] = "the stand-in for the driver lets nobody in for a minute"
    if not hasattr(dist, "shrink_group"):
        without["shrink"] = "PyTorch has no shrink_group"
    if not hasattr(dist, "_reconfigure"):
        without["reconfigure"] = "PyTorch has no _reconfigure"
    failed, passed, skipped = [], 0, 0
    for name in sys.argv[1:] or CASES:
        if name not in CASES:
            sys.exit(f"no such case: {name}; there are {', '.join(CASES)}")
        if name in without:
            skipped += 1
            print(f"skipped {name}: {without[name]}")
        elif run(name, *CASES[name]):
            passed += 1
        else:
            failed.append(name)
    print(f"result failures: {passed} cases passed, {skipped} skipped, "
          f"{'FAILED: ' + ', '.join(failed) if failed else 'none failed'}")
    sys.exit(bool(failed))


def run(name, ends, says):
    """`ends`: how each rank must end; `says`: what each rank that is not killed must say."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    begin, ranks = time.monotonic(), []
    for rank in range(RANKS):
        log = tempfile.TemporaryFile("w+")
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK="0", MASTER_ADDR="127.0.0.1",
                   MASTER_PORT=str(port), TORCH_FAILURES_CASE=name, TORCH_NCCL2_RECONFIGURE_SHRINK_GROW="1")
        if name == "shrink":  # else the watchdog ends the process first, or takes a minute to write what it saw
            env.update(TORCH_NCCL_ASYNC_ERROR_HANDLING="0", TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC="1000")
        ranks.append((subprocess.Popen(sys.orig_argv, stdout=log, stderr=log, env=env), log))
    wrong = []
    for rank, (process, log) in enumerate(ranks):
        try:
            status = process.wait(max(1, PATIENCE - (time.monotonic() - begin)))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = "none: it hung"
        log.seek(0)
        text = log.read()
        if rank == 0:
            version = next((line for line in text.splitlines() if line.startswith("NCCL version")), "")
        if not ends[rank](status) or (status != -signal.SIGKILL and not re.search(says, text)):
            wrong.append(f"rank {rank} ended with {status} and said:\n{text[-3000:]}")
    print(f"{'FAILED' if wrong else 'passed'} {name} ({time.monotonic() - begin:.1f} s) {version}", *wrong,
          sep="\n", flush=True)
    return not wrong


# ---- what ranks do ----

def rank_main(case):
    import torch
    import torch.distributed as dist
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(0)
    options = {"enable_reconfigure": True} if case == "reconfigure" else {}
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0), timeout=datetime.timedelta(seconds=20),
                            **options)
    status = 0
    try:
        RANK_MAINS[case](torch, dist, rank)
        print("went to its end", flush=True)
    except Exception:
        traceback.print_exc()
        status = 1
    os._exit(status)  # nothing is to be said to those that are gone, and PyTorch's watchdog may be at work


def sums(torch, dist, expected):
    tensor = torch.ones(1000, device="cuda")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    assert tensor.cpu().eq(expected).all(), tensor[:4]


def until_told(torch, dist):
    """Goes on until PyTorch raises, or its watchdog ends the process."""
    tensor = torch.ones(1000, device="cuda")
    while True:
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
        time.sleep(0.1)


def killed(torch, dist, rank):
    sums(torch, dist, RANKS)
    if rank == RANKS - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    until_told(torch, dist)


def killed_while_copying(torch, dist, rank):
    """The others wait for it within a copy to pageable memory. Whether the driver lets other threads in
    meanwhile, which let such work through by calling it, is written nowhere."""
    sums(torch, dist, RANKS)
    if rank == RANKS - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        tensor = torch.ones(1000, device="cuda")
        dist.all_reduce(tensor)
        tensor.cpu()


def different(torch, dist, rank):
    sums(torch, dist, RANKS)
    dist.all_reduce(torch.ones(10 + rank, device="cuda"))
    until_told(torch, dist)


def shrink(torch, dist, rank):
    sums(torch, dist, RANKS)
    if rank == RANKS - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        sums(torch, dist, RANKS)
    except Exception as error:  # or none: a result that nobody asked about is void, and the next call says so
        print("saw", type(error).__name__)
    dist.shrink_group([RANKS - 1], shrink_flags=1)  # NCCL_SHRINK_ABORT
    for _ in range(3):
        sums(torch, dist, RANKS - 1)


def reconfigure(torch, dist, rank):
    """The last rank joins later; rank 1 dies then, and the others go on."""
    store = dist.distributed_c10d._get_default_store()

    def meet(generation, members):
        store.set(f"{generation}/{rank}", dist._get_reconfigure_handle())
        handles = [store.get(f"{generation}/{member}").decode() for member in members]
        dist._reconfigure(generation, handles).wait()
        sums(torch, dist, len(members))

    if rank < RANKS - 1:
        meet(1, list(range(RANKS - 1)))
    meet(2, list(range(RANKS)))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(50):
        try:
            sums(torch, dist, RANKS)
        except AssertionError:  # void, and not told yet
            pass
        except Exception as error:
            print("saw", type(error).__name__)
            break
        time.sleep(0.1)
    meet(3, [r for r in range(RANKS) if r != 1])
    store.set(f"over/{rank}", "")
    store.wait([f"over/{r}" for r in range(RANKS) if r != 1])  # rank 0 has the store
    time.sleep(1)


def well(status):
    return status == 0


def told(status):
    return status in (1, -signal.SIGABRT)  # an exception, or PyTorch's watchdog


def dead(status):
    return status == -signal.SIGKILL


RANK_MAINS = {"killed": killed, "killed_while_copying": killed_while_copying, "different": different,
              "shrink": shrink, "reconfigure": reconfigure}
DIED = r"rank 2 \([^)]*\) died"
DIFFER = r"called all_reduce #\d+ \(count 1[012], .*called all_reduce #\d+ \(count 1[012], "
CASES = {"killed": ((told, told, dead), DIED),
         "different": ((told, told, told), DIFFER),
         "shrink": ((well, well, dead), "went to its end"),
         "reconfigure": ((well, dead, well), r"saw \w+\s[\s\S]*went to its end"),
         "killed_while_copying": ((told, told, dead), DIED)}

if "TORCH_FAILURES_CASE" in os.environ:
    rank_main(os.environ["TORCH_FAILURES_CASE"])
else:
    main()
