#!/bin/bash
# The guest's insides once its root is mounted (vm.py, init.sh): cables, RoCE devices, the job, off.
# guest.sh JOBFOLDER
job=$1
B=/run/busybox
PATH=$PATH:/usr/sbin:/sbin
ulimit -l unlimited
echo rdma > /proc/sys/kernel/hostname
for number in 0 1; do
    first=e$((2 * number)) second=e$((2 * number + 1)) net=10.9.$number
    # Both ends of a cable are here, and the kernel would take the short way between two addresses of
    # its own, where there is no RDMA device: what is sent to the other end goes out by the cable.
    ip -batch - <<END || echo "network $net failed"
link add $first mtu 4200 type veth peer name $second mtu 4200
addr add $net.1/24 dev $first
addr add $net.2/24 dev $second
link set $first up
link set $second up
rule add pref $((100 + number)) iif lo to $net.2 lookup 10$((2 * number))
rule add pref $((100 + number)) iif lo to $net.1 lookup 10$((2 * number + 1))
route add $net.2 dev $first src $net.1 table 10$((2 * number))
route add $net.1 dev $second src $net.2 table 10$((2 * number + 1))
END
done
ip link set lo up
# Packets from an address that is one's own are dropped unless this is set.
for which in all default e0 e1 e2 e3; do
    echo 1 > /proc/sys/net/ipv4/conf/$which/accept_local
done
ip rule add pref 1000 lookup local
ip rule del pref 0
for number in 0 1 2 3; do
    echo "link add rxe$number type rxe netdev e$number"
done | rdma -b - || echo "making RoCE devices failed"
# The IPv4 address is in the devices' tables a moment later.
for ((wait = 0; wait < 100; wait++)); do
    ready=0
    for number in 0 1 2 3; do
        grep -q 0a09 /sys/class/infiniband/rxe$number/ports/1/gids/1 && ready=$((ready + 1))
    done
    [ $ready = 4 ] && break
    $B sleep .05
done

for port in /sys/class/virtio-ports/*; do
    read -r name < "$port/name"
    declare "port_$name=/dev/${port##*/}"
done
$B mkfifo /run/out /run/err
$B cat /run/out > "$port_out" & out=$!
$B cat /run/err > "$port_err" & err=$!
setsid -w bash "$job/job" > /run/out 2> /run/err < /dev/null
status=$?
until=$((SECONDS + 2))
while kill -0 $out 2>/dev/null || kill -0 $err 2>/dev/null; do
    ((SECONDS < until)) || break # somebody who was left behind has them open
    $B sleep .05
done
echo $status > "$port_status"
sync
exec $B poweroff -f
