"""Who takes part, with which settings, and the command line of one run of each.

A peer is measured in several settings at once, because none is the best at every size; the fastest
at a size counts. Settings that cannot win outside a range of sizes are not run there."""

import os
import shutil

KI, MI = 1 << 10, 1 << 20
ANY = (0, 1 << 62)


class Setting:
    """One way to run one contender. `peer` names it in tables; `range` is of sizes in bytes."""

    def __init__(self, peer, name, program, flags=(), env=None, range=ANY, memory="malloc"):
        self.peer, self.name, self.program, self.memory = peer, name, program, memory
        self.flags, self.env, self.range = list(flags), dict(env or {}), range

    def label(self):
        return f"{self.peer}, {self.name}" if self.name else self.peer

    def kind(self):
        if "exchange" in self.flags:
            return "exchange"
        return {"allreduce_bench": "ours", "ideal": "limit"}.get(self.program, "peer")

    def plays(self, size):
        return self.range[0] <= size <= self.range[1]

    def facts(self):
        return {"peer": self.peer, "setting": self.name, "kind": self.kind(), "flags": self.flags,
                "env": self.env, "memory": self.memory}


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
ABOVE = 1 << 62

# ---- Open MPI --------------------------------------------------------------------------------------

# What its shared-memory transport is fastest with on hosts where reading another process' memory
# (process_vm_readv, its default) costs more than a copy through a segment: no single copy, and
# fragments that stay in a level-2 cache.
FRAGMENTS = mca(btl_vader_single_copy_mechanism="none", btl_vader_eager_limit=64 * KI,
                btl_vader_max_send_size=128 * KI)
SMALL_FRAGMENTS = mca(btl_vader_single_copy_mechanism="none", btl_vader_eager_limit=64 * KI,
                      btl_vader_max_send_size=64 * KI)
BOXES = mca(btl_vader_fbox_size=MI, btl_vader_fbox_threshold=1, btl_vader_eager_limit=64 * KI)


def segmented_ring(segment):
    return tuned(allreduce_algorithm=5, allreduce_algorithm_segmentsize=segment)


# Forced algorithms, by collective: (name, flags, range of sizes, least ranks). That a rule takes
# effect shows in its times: with two ranks most algorithms are the same exchange.
OPENMPI_ALGORITHMS = {
    "all_reduce": [
        ("segmented ring 128 KiB", segmented_ring(128 * KI), (64 * KI, ABOVE), 2),
        ("segmented ring 256 KiB", segmented_ring(256 * KI), (256 * KI, ABOVE), 2),
        ("Rabenseifner", tuned(allreduce_algorithm=6), (16 * KI, ABOVE), 3),
        ("recursive doubling", tuned(allreduce_algorithm=3), (0, 16 * KI), 3),
    ],
    "broadcast": [
        ("pipeline 128 KiB", tuned(bcast_algorithm=3, bcast_algorithm_segmentsize=128 * KI),
         (128 * KI, ABOVE), 2),
        ("binomial", tuned(bcast_algorithm=6), ANY, 3),
        ("chain", tuned(bcast_algorithm=2), (4 * KI, ABOVE), 3),
        ("knomial", tuned(bcast_algorithm=7), ANY, 3),
    ],
    "reduce_scatter": [
        ("linear", tuned(reduce_scatter_block_algorithm=1), (64 * KI, ABOVE), 2),
        ("recursive doubling", tuned(reduce_scatter_block_algorithm=2), (0, 64 * KI), 3),
        ("recursive halving", tuned(reduce_scatter_block_algorithm=3), (4 * KI, ABOVE), 2),
        ("butterfly", tuned(reduce_scatter_block_algorithm=4), ANY, 3),
    ],
    "all_gather": [
        ("ring", tuned(allgather_algorithm=4), (64 * KI, ABOVE), 2),
        ("recursive doubling", tuned(allgather_algorithm=3), (0, 64 * KI), 3),
        ("neighbour", tuned(allgather_algorithm=5), ANY, 4),
    ],
    "reduce": [
        ("linear", tuned(reduce_algorithm=1), ANY, 2),
        ("pipeline 128 KiB", tuned(reduce_algorithm=3, reduce_algorithm_segmentsize=128 * KI),
         (128 * KI, ABOVE), 2),
        ("binomial", tuned(reduce_algorithm=5), ANY, 3),
        ("Rabenseifner", tuned(reduce_algorithm=7), (16 * KI, ABOVE), 3),
    ],
    "all_to_all": [
        ("linear", tuned(alltoall_algorithm=1), ANY, 2),
        ("pairwise", tuned(alltoall_algorithm=2), ANY, 3),
        ("Bruck", tuned(alltoall_algorithm=3), (0, 64 * KI), 3),
    ],
    "gather": [
        ("linear", tuned(gather_algorithm=1), ANY, 2),
        ("binomial", tuned(gather_algorithm=2), ANY, 3),
    ],
    "scatter": [
        ("linear", tuned(scatter_algorithm=1), ANY, 2),
        ("binomial", tuned(scatter_algorithm=2), ANY, 3),
    ],
    "sendrecv": [],
    "all_gather_v": [
        ("ring", tuned(allgatherv_algorithm=3), (64 * KI, ABOVE), 2),
        ("Bruck", tuned(allgatherv_algorithm=2), (0, 64 * KI), 3),
        ("neighbour", tuned(allgatherv_algorithm=4), ANY, 4),
    ],
    "reduce_scatter_v": [
        ("non-overlapping", tuned(reduce_scatter_algorithm=1), (64 * KI, ABOVE), 2),
        ("recursive halving", tuned(reduce_scatter_algorithm=2), ANY, 2),
        ("ring", tuned(reduce_scatter_algorithm=3), (4 * KI, ABOVE), 3),
        ("butterfly", tuned(reduce_scatter_algorithm=4), ANY, 3),
    ],
    "all_to_all_v": [
        ("linear", tuned(alltoallv_algorithm=1), ANY, 2),
        ("pairwise", tuned(alltoallv_algorithm=2), ANY, 2),
    ],
    "gather_v": [],
    "scatter_v": [],
}


def openmpi_shm(coll, ranks, crowded):
    # More ranks than cores: without yielding a message takes a time slice.
    base = mca(pml="ob1", btl="self,vader") + (mca(mpi_yield_when_idle=1) if crowded else [])
    settings = [("default", [], ANY), ("large fast boxes", BOXES, (0, 512 * KI)),
                ("128 KiB fragments", FRAGMENTS, ANY),
                ("64 KiB fragments", SMALL_FRAGMENTS, (64 * KI, ABOVE))]
    for name, flags, sizes, least in OPENMPI_ALGORITHMS[coll]:
        if ranks >= least:
            settings.append((name + ", 128 KiB fragments", FRAGMENTS + flags, sizes))
            if sizes[1] == ABOVE:
                settings.append((name, flags, (max(sizes[0], MI), ABOVE)))
    if coll in ("all_reduce", "broadcast", "reduce"):
        for size, sizes in ((8 * KI, (0, 64 * KI)), (128 * KI, (16 * KI, ABOVE))):
            settings.append((f"coll/sm {size // KI} KiB", mca(coll_sm_priority=100,
                                                              coll_sm_fragment_size=size), sizes))
    return [Setting("Open MPI", name, "peer_openmpi", base + flags, range=sizes)
            for name, flags, sizes in settings]


def openmpi_tcp(coll, ranks, crowded):
    base = mca(pml="ob1", btl="self,tcp", btl_tcp_if_include="lo")
    base += mca(mpi_yield_when_idle=1) if crowded else []
    buffers = mca(btl_tcp_sndbuf=4 * MI, btl_tcp_rcvbuf=4 * MI)
    settings = [("default", [], ANY), ("4 MiB socket buffers", buffers, (64 * KI, ABOVE))]
    settings += [(name, flags, sizes) for name, flags, sizes, least in OPENMPI_ALGORITHMS[coll]
                 if ranks >= least]
    return [Setting("Open MPI", name, "peer_openmpi", base + flags, range=sizes)
            for name, flags, sizes in settings]


# ---- MPICH -----------------------------------------------------------------------------------------

# (name, environment, range of sizes). Those from 8 KiB up run with large cells as well.
MPICH_ALGORITHMS = {
    "all_reduce": [
        ("recursive doubling", cvars(ALLREDUCE_INTRA_ALGORITHM="recursive_doubling"), (0, 64 * KI)),
        ("Rabenseifner", cvars(ALLREDUCE_INTRA_ALGORITHM="reduce_scatter_allgather"), (8 * KI, ABOVE)),
    ],
    "broadcast": [
        ("binomial", cvars(BCAST_INTRA_ALGORITHM="binomial"), (8 * KI, ABOVE)),
        ("scatter and ring", cvars(BCAST_INTRA_ALGORITHM="scatter_ring_allgather"), (MI, ABOVE)),
    ],
    "reduce_scatter": [
        ("recursive halving", cvars(REDUCE_SCATTER_BLOCK_INTRA_ALGORITHM="recursive_halving"),
         (0, 64 * KI)),
        ("pairwise", cvars(REDUCE_SCATTER_BLOCK_INTRA_ALGORITHM="pairwise"), (8 * KI, ABOVE)),
    ],
    "all_gather": [
        ("recursive doubling", cvars(ALLGATHER_INTRA_ALGORITHM="recursive_doubling"), (8 * KI, ABOVE)),
        ("ring", cvars(ALLGATHER_INTRA_ALGORITHM="ring"), (8 * KI, ABOVE)),
    ],
    "reduce": [
        ("binomial", cvars(REDUCE_INTRA_ALGORITHM="binomial"), (8 * KI, ABOVE)),
        ("Rabenseifner", cvars(REDUCE_INTRA_ALGORITHM="reduce_scatter_gather"), (8 * KI, ABOVE)),
    ],
    "all_to_all": [
        ("scattered", cvars(ALLTOALL_INTRA_ALGORITHM="scattered"), ANY),
        ("pairwise", cvars(ALLTOALL_INTRA_ALGORITHM="pairwise"), (8 * KI, ABOVE)),
    ],
    "gather": [],
    "scatter": [],
    "sendrecv": [],
    "all_gather_v": [
        ("recursive doubling", cvars(ALLGATHERV_INTRA_ALGORITHM="recursive_doubling"),
         (8 * KI, ABOVE)),
        ("ring", cvars(ALLGATHERV_INTRA_ALGORITHM="ring"), (8 * KI, ABOVE)),
    ],
    "reduce_scatter_v": [
        ("recursive halving", cvars(REDUCE_SCATTER_INTRA_ALGORITHM="recursive_halving"),
         (0, 64 * KI)),
        ("pairwise", cvars(REDUCE_SCATTER_INTRA_ALGORITHM="pairwise"), (8 * KI, ABOVE)),
    ],
    "all_to_all_v": [
        ("scattered", cvars(ALLTOALLV_INTRA_ALGORITHM="scattered"), ANY),
    ],
    "gather_v": [],
    "scatter_v": [],
}
# The collectives that MPICH has through shared flags and cells.
MPICH_RELEASE_GATHER = {"all_reduce": "ALLREDUCE", "broadcast": "BCAST", "reduce": "REDUCE"}


def mpich_shm(coll, ranks, crowded):
    cells = cvars(CH4_SHM_POSIX_IQUEUE_CELL_SIZE=256 * KI)
    settings = [("default", {}, ANY), ("large cells", cells, (8 * KI, ABOVE))]
    for name, env, sizes in MPICH_ALGORITHMS[coll]:
        settings.append((name, {**PORTABLE, **env}, sizes))
        if sizes[0] >= 8 * KI:
            settings.append((name + ", large cells", {**PORTABLE, **env, **cells}, sizes))
    if coll in MPICH_RELEASE_GATHER:
        name = MPICH_RELEASE_GATHER[coll] + "_POSIX_INTRA_ALGORITHM"
        settings.append(("release-gather", cvars(**{name: "release_gather"},
                                                 POSIX_NUM_COLLS_THRESHOLD=0), ANY))
    if crowded:
        # Its ranks spin whatever the setting (POLLS_BEFORE_YIELD changes nothing in shared memory):
        # every message takes time slices, and variants only take time.
        settings = settings[:1]
    return [Setting("MPICH", name, "peer_mpich", env=env, range=sizes)
            for name, env, sizes in settings]


def mpich_tcp(coll, ranks, crowded):
    base = {**cvars(NOLOCAL=1), "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
    settings = [("default", {}, ANY)]
    settings += [(name, {**PORTABLE, **env}, sizes) for name, env, sizes in MPICH_ALGORITHMS[coll]]
    return [Setting("MPICH", name, "peer_mpich", env={**base, **env}, range=sizes)
            for name, env, sizes in settings]


def gloo_tcp(coll, ranks, crowded):
    if coll not in ("all_reduce", "broadcast", "all_gather"):
        return []
    if coll != "all_reduce":
        return [Setting("Gloo", "", "peer_gloo")]
    return [Setting("Gloo", name, "peer_gloo", ["--algorithm", name]) for name in ("ring", "bcube")]


# With a root, which gives or gets all: ranks run ahead of each other.
ROOTED = ("broadcast", "reduce", "gather", "scatter", "gather_v", "scatter_v")
# Where blocks differ in size, the last rank's is so many times the first one's.
UNEVEN = 3


def uneven_flags(coll):
    return ["--uneven", str(UNEVEN)] if coll.endswith("_v") else []


# Below this size the ideal is a few nanoseconds: what it leaves out is all there is.
IDEAL_FROM = 4 * KI
OURS = "Tutti"


def all_settings(coll, transport, ranks=2, cores=2, memories=("library",)):
    """Ours in each kind of memory, the peers in each setting, the limit."""
    peers = ([openmpi_shm, mpich_shm] if transport == "shm" else [openmpi_tcp, mpich_tcp, gloo_tcp])
    settings = [Setting(OURS, memory if len(memories) > 1 else "", "allreduce_bench", memory=memory)
                for memory in memories]
    for peer in peers:
        settings += peer(coll, ranks, ranks > cores)
    if transport == "shm":
        settings.append(Setting("ideal fused direct", "", "ideal", range=(IDEAL_FROM, ABOVE)))
        # With a root not everybody needs something of the others; crowded, it is the scheduler that
        # counts.
        if coll not in ROOTED and ranks <= cores:
            settings.append(Setting("exchange of a line", "", "ideal", ["--algorithm", "exchange"]))
    return settings


def program_path(build, program):
    return os.path.join(build, "bin" if program in ("allreduce_bench", "tuttirun") else "compare", program)


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

    def __init__(self, build, coll, ranks, transport, cores, in_place=False, rewrite=False, even=False):
        self.build, self.coll, self.ranks = build, coll, ranks
        self.transport, self.cores = transport, cores
        self.in_place, self.rewrite = in_place, rewrite
        self.even = even and not self.bound()

    def bound(self):
        return self.ranks <= self.cores

    def placed(self):
        """Before the program of a rank that others start: it runs on core (local rank) mod (cores)."""
        if not self.even:
            return []
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        return ["sh", "-c", 'rank=${LOCAL_RANK-${OMPI_COMM_WORLD_LOCAL_RANK-$MPI_LOCALRANKID}}; '
                f'core=$(echo {cores} | cut -d, -f$((rank % {self.cores} + 1))); '
                'exec taskset -c "$core" "$@"', "placed"]


def ours_command(job, memory, sizes, effort, json_path):
    """`sizes` are consecutive in a sweep with a factor of two, or one."""
    command = [program_path(job.build, "allreduce_bench"), "--coll", job.coll, "-b", str(sizes[0]),
               "-e", str(sizes[-1]), "-f", "2", "--transport", job.transport, "--memory", memory,
               "-w", str(effort[0]), "--json", json_path, *uneven_flags(job.coll)]
    if effort[1]:
        command += ["-n", str(effort[1])]
    if job.rewrite:
        command += ["--rewrite"]
    if job.even:
        return tuttirun(job) + job.placed() + command
    return command + ["--ranks", str(job.ranks), "--bind", "core" if job.bound() else "none"]


def tuttirun(job):
    return [program_path(job.build, "tuttirun"), "--bind", "none", "-n", str(job.ranks)]


def peer_command(job, setting, sizes, effort):
    program = program_path(job.build, setting.program)
    sweep = ["--coll", job.coll, "--sizes", ",".join(map(str, sizes)), "--warmup", str(effort[0]),
             "--iterations", str(effort[1]), *uneven_flags(job.coll)]
    sweep += ["--in-place"] * job.in_place + ["--rewrite"] * job.rewrite
    if setting.program == "peer_openmpi":
        return openmpi_launch(job.ranks, job.bound()) + setting.flags + job.placed() + [program] + sweep
    if setting.program == "peer_mpich":
        return mpich_launch(job.ranks, job.bound()) + job.placed() + [program] + sweep
    bind = ["--bind"] if job.bound() or job.even or setting.program == "ideal" else []
    return [program] + setting.flags + bind + ["--ranks", str(job.ranks)] + sweep


def openmpi_launch(ranks, bound):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    place = ["--bind-to", "core"] if bound else ["--bind-to", "none", "--oversubscribe"]
    return ["mpirun.openmpi"] + root + place + ["-n", str(ranks)]


def mpich_launch(ranks, bound):
    return ["mpiexec.mpich"] + (["-bind-to", "core"] if bound else []) + ["-n", str(ranks)]
