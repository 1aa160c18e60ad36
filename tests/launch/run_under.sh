#!/usr/bin/env bash
# run_under.sh hydra|openmpi|slurm: place_print under a real launcher; every rank must find itself
# and meet the others, twice. Exit status 77, with a loud line, where the launcher is not installed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
place=$TUTTI_BUILD/tests/place_print
failed=0

need() {
    command -v "$1" >/dev/null && return
    echo "############ SKIPPED: $1 is not installed; Tutti under it is not tested ############" >&2
    exit 77
}

# expect LAUNCHER SIZE TIMES COMMAND...: the sorted lines of all ranks, and exit status 0.
expect() {
    local launcher=$1 size=$2 times=$3 wanted got status
    shift 3
    wanted=$(for ((k = 0; k < size; k++)); do
        for ((t = 0; t < times; t++)); do
            echo "rank $k of $size launcher $launcher local $k of $size ok"
        done
    done)
    got=$(timeout -k 5 100 "$@" 2>"$log") # one that hangs has a name then
    status=$?
    if [ $status != 0 ] || [ "$(echo "$got" | sort)" != "$wanted" ]; then
        printf 'FAILED (status %s): %s\nwanted:\n%s\ngot:\n%s\n' $status "$*" "$wanted" "$got"
        cat "$log"
        failed=1
    else
        echo "ok: $*"
    fi
}

log=$(mktemp)
# In builds with a sanitizer: what libpmix itself leaks and does is not ours.
suppress=$(mktemp)
trap 'rm -f "$log" "$suppress"' EXIT
echo "leak:libpmix" >"$suppress"
export LSAN_OPTIONS="suppressions=$suppress:print_suppressions=0"
export TSAN_OPTIONS="ignore_noninstrumented_modules=1"
case $1 in
hydra)
    need mpiexec.mpich
    # Of a stdin that is at its end mpiexec tells its proxy, and dies of SIGPIPE if that has ended
    # already. So here it does not end.
    mkfifo "$log.stdin" && exec 0<>"$log.stdin" && rm "$log.stdin"
    expect mpich 3 2 mpiexec.mpich -n 3 "$place" --twice
    expect mpich 1 1 mpiexec.mpich -n 1 "$place"
    ;;
openmpi)
    need mpirun.openmpi
    run="mpirun.openmpi --oversubscribe"
    [ "$(id -u)" = 0 ] && run="$run --allow-run-as-root"
    expect openmpi 3 2 $run -n 3 "$place" --twice
    expect openmpi 1 1 $run -n 1 "$place"
    # Without libpmix, on one host.
    expect openmpi 3 1 env TUTTI_LIBPMIX=/nowhere/libpmix.so $run -n 3 "$place"
    # Another launcher inside.
    expect tuttirun 2 1 $run -n 1 "$TUTTI_BIN/tuttirun" --no-prefix -n 2 "$place"
    ;;
slurm)
    "$here/with_slurm.sh" "$0" inside-slurm
    exit
    ;;
inside-slurm)
    expect slurm 2 2 srun -n 2 "$place" --twice
    expect slurm 3 1 srun --mpi=pmi2 -n 3 "$place"
    expect tuttirun 2 1 srun -n 1 "$TUTTI_BIN/tuttirun" --no-prefix -n 2 "$place"
    kinds=$(srun --mpi=list 2>&1 || true)
    trial=$(srun --mpi=pmix -n 1 true 2>&1 || true)
    if [[ $kinds != *pmix* ]]; then
        echo "SKIPPED: srun --mpi=pmix: this Slurm has no pmix plugin"
    elif [[ $trial == *"can not load PMIx library"* ]]; then
        echo "SKIPPED: srun --mpi=pmix: Slurm's plugin finds no libpmix.so (package libpmix-dev)"
    else
        expect slurm 2 1 srun --mpi=pmix -n 2 "$place"
        # The PMIx of Slurm alone, as another PMIx launcher would look.
        expect pmix 2 2 srun --mpi=pmix -n 2 env -u SLURM_STEP_ID "$place" --twice
    fi
    # Nested in an allocation: the inner launcher counts.
    if command -v mpiexec.mpich >/dev/null; then
        expect mpich 3 1 salloc -Q -n 3 mpiexec.mpich -n 3 "$place"
    fi
    if command -v mpirun.openmpi >/dev/null; then
        expect openmpi 3 1 salloc -Q -n 3 mpirun.openmpi --allow-run-as-root -n 3 "$place"
    fi
    ;;
*)
    echo "run_under.sh: hydra, openmpi or slurm?" >&2
    exit 2
    ;;
esac
exit $failed
