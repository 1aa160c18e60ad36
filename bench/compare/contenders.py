"""Who takes part, with which settings, and the command line of one run of each.

A peer is measured in several settings at once, because none is the best at every size; the fastest
at a size counts. Settings that cannot win outside a range of sizes are not run there."""

import os
import shutil

KI, MI = 1 << 10, 1 << 20
ANY = (0, 1 << 62)


class Setting:
    """One way to run one contender. `peer` names it in tables; `range` is of sizes in bytes."""

    def __init__(self, peer, name, program, flags=(), env=None, range=ANY):
        self.peer, self.name, self.program = peer, name, program
        self.flags, self.env, self.range = list(flags), dict(env or {}), range

    def label(self):
        return f"{self.peer}, {self.name}" if self.name else self.peer

    def kind(self):
        return {"allreduce_bench": "ours", "ideal": "limit"}.get(self.program, "peer")

    def plays(self, size):
        return self.range[0] <= size <= self.range[1]

    def facts(self):
        return {"peer": self.peer, "setting": self.name, "kind": self.kind(), "flags": self.flags,
                "env": self.env}


def mca(**parameters):
    flags = []
    for name, value in parameters.items():
        flags += ["--mca", name, str(value)]
    return flags


def tuned(**algorithms):
    """Algorithms by name or number, as Open MPI's coll/tuned takes them."""
    return mca(coll_tuned_use_dynamic_rules=1,
               **{"coll_tuned_" + name: value for name, value in algorithms.items()})


def cvars(**values):
    return {"MPIR_CVAR_" + name: str(value) for name, value in values.items()}


# MPICH's portable algorithms instead of those of its device.
PORTABLE = cvars(DEVICE_COLLECTIVES="none")

# Open MPI's forced algorithms, by collective: (name, flags, range of sizes).
OPENMPI_ALGORITHMS = {
    "all_reduce": [
        ("segmented ring 128 KiB", tuned(allreduce_algorithm=5,
                                         allreduce_algorithm_segmentsize=128 * KI), (64 * KI, 128 * MI)),
        ("segmented ring 256 KiB", tuned(allreduce_algorithm=5,
                                         allreduce_algorithm_segmentsize=256 * KI), (256 * KI, 1 << 62)),
    ],
    "broadcast": [
        ("pipeline 128 KiB", tuned(bcast_algorithm=3, bcast_algorithm_segmentsize=128 * KI),
         (128 * KI, 1 << 62)),
    ],
    "reduce_scatter": [
        ("recursive halving", tuned(reduce_scatter_block_algorithm=3), (64 * KI, 1 << 62)),
    ],
    "all_gather": [
        ("ring", tuned(allgather_algorithm=4), (64 * KI, 1 << 62)),
    ],
}


def openmpi_shm(coll):
    base = mca(pml="ob1", btl="self,vader")
    boxes = mca(btl_vader_fbox_size=MI, btl_vader_fbox_threshold=1, btl_vader_eager_limit=64 * KI)
    settings = [("default", [], ANY), ("large fast boxes", boxes, (0, 512 * KI))]
    settings += OPENMPI_ALGORITHMS[coll]
    if coll in ("all_reduce", "broadcast"):
        settings.append(("coll/sm 128 KiB", mca(coll_sm_priority=100,
                                                coll_sm_fragment_size=128 * KI), (16 * KI, 1 << 62)))
    return [Setting("Open MPI", name, "peer_openmpi", base + flags, range=sizes)
            for name, flags, sizes in settings]


def openmpi_tcp(coll):
    base = mca(pml="ob1", btl="self,tcp", btl_tcp_if_include="lo")
    buffers = mca(btl_tcp_sndbuf=4 * MI, btl_tcp_rcvbuf=4 * MI)
    settings = [("default", [], ANY), ("4 MiB socket buffers", buffers, (64 * KI, 1 << 62))]
    settings += [algorithm for algorithm in OPENMPI_ALGORITHMS[coll]]
    return [Setting("Open MPI", name, "peer_openmpi", base + flags, range=sizes)
            for name, flags, sizes in settings]


MPICH_ALGORITHMS = {
    "all_reduce": [
        ("recursive doubling", cvars(ALLREDUCE_INTRA_ALGORITHM="recursive_doubling"), (0, 64 * KI)),
        ("Rabenseifner", cvars(ALLREDUCE_INTRA_ALGORITHM="reduce_scatter_allgather"),
         (8 * KI, 1 << 62)),
    ],
    "broadcast": [
        ("binomial", cvars(BCAST_INTRA_ALGORITHM="binomial"), ANY),
    ],
    "reduce_scatter": [
        ("pairwise", cvars(REDUCE_SCATTER_BLOCK_INTRA_ALGORITHM="pairwise"), (4 * KI, 1 << 62)),
    ],
    "all_gather": [
        ("recursive doubling", cvars(ALLGATHER_INTRA_ALGORITHM="recursive_doubling"), ANY),
    ],
}
# The collectives that MPICH has through shared flags and cells.
MPICH_RELEASE_GATHER = {"all_reduce": "ALLREDUCE", "broadcast": "BCAST"}


def mpich_shm(coll):
    cells = cvars(CH4_SHM_POSIX_IQUEUE_CELL_SIZE=256 * KI)
    settings = [("default", {}, ANY)]
    for name, env, sizes in MPICH_ALGORITHMS[coll]:
        large = sizes[1] > MI and coll != "all_reduce" or name == "Rabenseifner"
        settings.append((name + (", large cells" if large else ""),
                         {**PORTABLE, **env, **(cells if large else {})}, sizes))
    if coll in MPICH_RELEASE_GATHER:
        name = MPICH_RELEASE_GATHER[coll] + "_POSIX_INTRA_ALGORITHM"
        settings.append(("release-gather", cvars(**{name: "release_gather"},
                                                 POSIX_NUM_COLLS_THRESHOLD=0), ANY))
    return [Setting("MPICH", name, "peer_mpich", env=env, range=sizes)
            for name, env, sizes in settings]


def mpich_tcp(coll):
    base = {**cvars(NOLOCAL=1), "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
    settings = [("default", {}, ANY)]
    settings += [(name, {**PORTABLE, **env}, sizes) for name, env, sizes in MPICH_ALGORITHMS[coll]]
    return [Setting("MPICH", name, "peer_mpich", env={**base, **env}, range=sizes)
            for name, env, sizes in settings]


def gloo_tcp(coll):
    if coll == "reduce_scatter":
        return []
    if coll != "all_reduce":
        return [Setting("Gloo", "", "peer_gloo")]
    return [Setting("Gloo", name, "peer_gloo", ["--algorithm", name]) for name in ("ring", "bcube")]


# Below this size the ideal is a few nanoseconds: what it leaves out is all there is.
IDEAL_FROM = 4 * KI


def all_settings(coll, transport):
    peers = ([openmpi_shm, mpich_shm] if transport == "shm" else [openmpi_tcp, mpich_tcp, gloo_tcp])
    settings = [Setting("Tutti", "", "allreduce_bench")]
    for peer in peers:
        settings += peer(coll)
    if transport == "shm":
        settings.append(Setting("ideal fused direct", "", "ideal", range=(IDEAL_FROM, 1 << 62)))
    return settings


def program_path(build, program):
    return os.path.join(build, "bin" if program == "allreduce_bench" else "compare", program)


def missing(build, settings):
    """Peer: why it cannot take part."""
    found = {}
    for s in settings:
        launcher = {"peer_openmpi": "mpirun.openmpi", "peer_mpich": "mpiexec.mpich"}.get(s.program)
        if not os.access(program_path(build, s.program), os.X_OK):
            found[s.peer] = f"{s.program} was not built (its library or compiler is missing)"
        elif launcher and not shutil.which(launcher):
            found[s.peer] = f"there is no {launcher}"
    return found


class Job:
    """What all runs have in common."""

    def __init__(self, build, coll, ranks, transport, memory, cores, can_bind):
        self.build, self.coll, self.ranks = build, coll, ranks
        self.transport, self.memory, self.cores = transport, memory, cores
        self.can_bind = can_bind  # whether our own program has --bind

    def bound(self):
        return self.ranks <= self.cores


def ours_command(job, sizes, effort, json_path):
    """`sizes` are consecutive in a sweep with a factor of two, or one."""
    command = [program_path(job.build, "allreduce_bench"), "--coll", job.coll, "-b", str(sizes[0]),
               "-e", str(sizes[-1]), "-f", "2", "--ranks", str(job.ranks), "--transport",
               job.transport, "--memory", job.memory, "-w", str(effort[0]), "--json", json_path]
    if effort[1]:
        command += ["-n", str(effort[1])]
    if job.can_bind and job.bound():
        command += ["--bind", "core"]
    return command


def peer_command(job, setting, sizes, effort):
    program = program_path(job.build, setting.program)
    sweep = ["--coll", job.coll, "--sizes", ",".join(map(str, sizes)), "--warmup", str(effort[0]),
             "--iterations", str(effort[1])]
    if setting.program == "peer_openmpi":
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        place = ["--bind-to", "core"] if job.bound() else ["--bind-to", "none", "--oversubscribe"]
        return (["mpirun.openmpi"] + root + place + setting.flags +
                ["-n", str(job.ranks), program] + sweep)
    if setting.program == "peer_mpich":
        place = ["-bind-to", "core"] if job.bound() else []
        return ["mpiexec.mpich"] + place + ["-n", str(job.ranks), program] + sweep
    bind = ["--bind"] if job.bound() or setting.program == "ideal" else []
    return [program] + setting.flags + bind + ["--ranks", str(job.ranks)] + sweep
