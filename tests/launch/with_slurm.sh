#!/usr/bin/env bash
# with_slurm.sh COMMAND...: a Slurm of one node, in a temporary folder, on loopback and private ports,
# for the time of COMMAND, which finds it with plain srun (SLURM_CONF is set). Stops exactly what it
# started. Exit status: COMMAND's; 77 where Slurm is not installed or we are not root.
set -u
export PATH=$PATH:/usr/sbin:/sbin

skip() {
    echo "############ SKIPPED: $1 ############" >&2
    exit 77
}
for program in munged slurmctld slurmd srun sinfo; do
    command -v $program >/dev/null || skip "$program is not installed; Slurm is not tested"
done
[ "$(id -u)" = 0 ] || skip "not root; Slurm's daemons are not started"

dir=$(mktemp -d /tmp/tutti_slurm.XXXXXX)
chmod 755 "$dir"
mkdir -m 755 "$dir/munge" "$dir/state" "$dir/spool"
pids=()

# stop KEEP: the daemons started after the first KEEP, the last one first; they have nothing to hand
# over.
stop() {
    local pid i
    for ((i = ${#pids[@]} - 1; i >= $1; i--)); do
        pid=${pids[i]}
        kill -TERM "$pid" 2>/dev/null
        for _ in $(seq 50); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
        unset "pids[i]"
    done
}
finish() {
    stop 0
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

start() { # start NAME COMMAND...
    local name=$1
    shift
    "$@" >"$dir/$name.out" 2>&1 </dev/null &
    pids+=($!)
}

host=$(hostname -s)
dd if=/dev/urandom of="$dir/munge/key" bs=128 count=1 status=none
chmod 600 "$dir/munge/key"
start munged munged --foreground --force --socket="$dir/munge/socket" --key-file="$dir/munge/key" \
    --log-file="$dir/munge/log" --pid-file="$dir/munge/pid" --seed-file="$dir/munge/seed"

configure() { # configure PORT
    # The name keeps two of these apart: both have a job 1, and ranks meet by cluster and job.
cat >"$dir/slurm.conf" <<CONF
ClusterName=tutti$$
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$1
SlurmdPort=$(($1 + 1))
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
}
export SLURM_CONF=$dir/slurm.conf

for _ in $(seq 50); do
    [ -S "$dir/munge/socket" ] && break
    sleep 0.1
done

# Controller and node on two ports below those that the kernel gives out; true when the node is idle.
bring_up() {
    configure $((17000 + RANDOM % 1400 * 2))
    start slurmctld slurmctld -D -f "$SLURM_CONF"
    local controller=${pids[-1]}
    start slurmd slurmd -D -f "$SLURM_CONF" -N "$host"
    for _ in $(seq 75); do
        kill -0 "$controller" 2>/dev/null || return 1
        [ "$(timeout 3 sinfo -h -o %T 2>/dev/null)" = idle ] && return 0
        sleep 0.2
    done
    return 1
}
for attempt in 1 2 3; do
    if bring_up; then
        "$@"
        exit
    fi
    echo "with_slurm.sh: attempt $attempt: the node does not come up:" >&2
    tail -n 5 "$dir"/*.out >&2
    stop 1
done
# Containers that withhold what slurmd needs are no failure of ours.
skip "Slurm does not start on this machine"
