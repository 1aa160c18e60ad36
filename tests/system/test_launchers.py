#!/usr/bin/env python3
"""The same benchmark under every launcher: it finds its ranks by itself and prints one table."""
import os
import re
import shutil
import socket
import subprocess

import job

SWEEP = [job.BENCH, "-b", "8", "-e", "256K", "-f", "32", "-n", "5", "-w", "1"]
LIMIT = 200


def ranks_said(running, size):
    """The table's head says how many ranks there are."""
    head = "\n".join(line for line in running.out if "#" in line)
    running.check(re.search(rf"\b{size} ranks\b", head),
                  f"the head of the table does not say {size} ranks")


def under(size, *launcher, environment=None):
    """One launcher's command, to its end."""
    with job.Job([*launcher, *SWEEP], environment) as running:
        running.succeed(LIMIT)
        ranks_said(running, size)
        running.gone()


def none():
    """No launcher: two ranks of its own."""
    under(2)


def tuttirun():
    """Ours."""
    under(3, job.TUTTIRUN, "-n", 3)


def openmpi():
    """Open MPI's mpirun. Its client library loses some memory of its own."""
    job.need("mpirun.openmpi")
    under(3, "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", 3,
          environment={"LSAN_OPTIONS": "detect_leaks=0"})


def mpich():
    """MPICH's mpiexec (Hydra)."""
    job.need("mpiexec.mpich")
    under(3, "mpiexec.mpich", "-n", 3)


def slurm():
    """srun, with daemons that the script starts for this run."""
    job.need("srun", "slurmctld", "slurmd")
    script = os.path.join(os.environ.get("TUTTI_SOURCE", "."), "tests/launch/with_slurm.sh")
    if not os.path.exists(script):
        raise job.Skip("there is no tests/launch/with_slurm.sh")
    with job.Job([script, "srun", "-n", 2, *SWEEP]) as running:
        status = running.wait(LIMIT)
        if status == job.SKIPPED:
            raise job.Skip(" ".join([*running.out, *running.err][-2:]))
        running.succeed(1)
        ranks_said(running, 2)


def torchrun():
    """What torchrun sets, with its agent's store on MASTER_PORT."""
    size = 3
    with socket.create_server(("127.0.0.1", 0)) as store:
        port = store.getsockname()[1]
        jobs = [job.Job(SWEEP, {**job.by_hand(rank, size, port), "LOCAL_RANK": str(rank),
                                "LOCAL_WORLD_SIZE": str(size), "GROUP_RANK": "0",
                                "TORCHELASTIC_RUN_ID": "none",
                                "TORCHELASTIC_USE_AGENT_STORE": "True"})
                for rank in range(size)]
        try:
            for rank, each in enumerate(jobs):
                each.succeed(LIMIT, tables=int(rank == 0))
            ranks_said(jobs[0], size)
        finally:
            for each in jobs:
                each.end()


def real_torchrun():
    """torchrun itself, where there is one that starts anything (that of PyTorch 1.13 does not under
    Python 3.11)."""
    job.need("torchrun")
    alone = ["torchrun", "--nproc_per_node", "1", "--no_python", "true"]
    tried = subprocess.run(alone, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if tried.returncode:
        raise job.Skip(f"{' '.join(alone)}: {tried.stderr.strip().splitlines()[-1]}")
    under(2, "torchrun", "--nproc_per_node", 2, "--no_python")


def nested():
    """tuttirun inside another launcher's rank: the innermost one counts."""
    job.need("mpirun.openmpi")
    under(2, "mpirun.openmpi", "--allow-run-as-root", "-n", 1, job.TUTTIRUN, "-n", 2)


if __name__ == "__main__":
    for folder in ("/usr/lib/slurm", "/usr/sbin"):
        if shutil.which("slurmctld") is None and os.path.isdir(folder):
            os.environ["PATH"] += ":" + folder
    job.main([("no launcher", none), ("tuttirun", tuttirun), ("Open MPI", openmpi),
              ("MPICH", mpich), ("Slurm", slurm), ("torchrun's variables", torchrun),
              ("torchrun", real_torchrun), ("tuttirun in mpirun", nested)])
