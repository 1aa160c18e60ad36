#!/usr/bin/env bash
# tutti-topo from outside: what it prints, draws and writes; wrong input is one line and status 2.
set -u
topo=$TUTTI_BIN/tutti-topo
here=$(dirname "$0")
. "$here/../from_outside.sh"

try 0 "$topo"
out_has '^host .*: [0-9]+ cores?'
[ "$(grep -oE 'pu [0-9]+' "$dir/out" | wc -l)" = "$(nproc)" ] || wrong "not $(nproc) CPUs"
TUTTI_LIBHWLOC=/nowhere try 0 "$topo"
[ "$(grep -oE 'pu [0-9]+' "$dir/out" | wc -l)" = "$(nproc)" ] || wrong "without hwloc not $(nproc) CPUs"

cluster="2 hosts x 8 gpus, nvlink 450, 8 nics 50, 2 packages, 32 cores, 2 threads"
try 0 "$topo" --synthetic "$cluster"
out_has '^host 1: 32 cores, 64 pus, 8 gpus, 8 nics$'
out_has '^ +gpu 7; nvlink 450 GB/s to switch NVSwitch$'
out_has '^ +nic 7; network 50 GB/s to switch network$'
cp "$dir/out" "$dir/tree"
try 0 "$topo" --synthetic "$cluster" -o "$dir/cluster.json"
try 0 "$topo" --json "$dir/cluster.json"
cmp -s "$dir/out" "$dir/tree" || wrong "JSON gives another tree"
try 0 "$topo" --synthetic "$cluster" --explain
out_has '^8 ranks \(one for each GPU\) on 32 cores of 2 NUMA nodes'
out_has '^rank 7: CPUs 28-31,60-63, in numa 1: near its gpu 7$'
try 0 "$topo" --synthetic "$cluster" -e -n 33
out_has 'not bound'
try 0 "$topo" --synthetic "$cluster" -o "$dir/cluster.svg"
[ "$(grep -c '<rect' "$dir/cluster.svg")" -gt 100 ] || wrong "few boxes"
if command -v xmllint >/dev/null; then xmllint --noout "$dir/cluster.svg" || wrong "no XML"; fi

try 0 "$topo" --synthetic "4 gpus, mesh 50" --rings
out_has '^6 rings over 4 gpus, each 25 GB/s: 150 GB/s in all'
out_has '^ring 5: host 0: gpu . = gpu . = gpu . = gpu . =$'
try 0 "$topo" --synthetic "2 hosts, 1 nic 12.5" --rings
out_has '^ring 0: host 0 \[nic 0 > nic 0\] host 1 \[nic 0 > nic 0\]$'
try 1 "$topo" --synthetic "2 hosts" --rings

two="2 hosts x 4 gpus, nvlink 450, nvls, 4 nics 50, pcie 63, 4 switches, 8 cores"
try 0 "$topo" --synthetic "$two" --explain --rings --trees --predict
out_has '^rank 3: CPUs 6-7, in numa 0: near its gpu 3$'
out_has '^host 1: gpu 3 uses nic 3: same PCI switch, rail 3$'
out_has '^no more is possible: 200 GB/s is all that host 0 can carry$'
out_has '^    hops: 6 by NVLink, 1 by network; one rail on all hosts: nic 3$'
out_has '^tree 0: host 0: gpu 0 \('
out_has '^  ring    188.0 GB/s$'
out_has '^assumed: network: 94% of the line rate'
try 0 "$topo" --synthetic "$two" -o "$dir/lanes.svg"
[ "$(grep -c '>ring [0-9]' "$dir/lanes.svg")" = 4 ] || wrong "not 4 rings in the picture"
grep -q '>tree 0<' "$dir/lanes.svg" || wrong "no tree in the picture"
grep -q 'bus bandwidth predicted: ring 188' "$dir/lanes.svg" || wrong "no prediction in the picture"
if command -v xmllint >/dev/null; then xmllint --noout "$dir/lanes.svg" || wrong "no XML"; fi
try 0 "$topo" --synthetic "$two" --trees -o "$dir/trees.svg"
grep -q '>ring 0<' "$dir/trees.svg" && wrong "rings in a picture of trees"
try 0 "$topo" --synthetic "$two" -o "$dir/again.svg"
cmp -s "$dir/lanes.svg" "$dir/again.svg" || wrong "the picture differs from run to run"
try 0 "$topo" --synthetic "1000 hosts x 1 gpu, 1 nic 50" -o "$dir/many.svg" # too many to search
try 1 "$topo" --synthetic "1 gpu" --predict

if TUTTI_LOG=off "$topo" --synthetic "package:2 core:2 pu:1" >"$dir/out" 2>&1; then
    out_has '^    package 1$'
    try 0 "$topo" --xml "$here/two_gpus.xml"
    out_has '^      gpu 0000:02:00.0 GA100 \[A100\]; pci 31.51 GB/s$'
    refused "/nowhere.xml" "$topo" --xml /nowhere.xml
    echo "<topology" >"$dir/bad.xml"
    refused "bad.xml" "$topo" --xml "$dir/bad.xml"
fi
try 0 "$topo" --measure
grep -qE '^tutti-topo: measured [0-9]+ links in' "$dir/err" || wrong "not told what was measured"
out_has 'memory .* GB/s .* us measured to numa'
refused "described" "$topo" --measure -s "2 hosts"
refused "hosst" "$topo" --synthetic "4 hosst x 8 gpus"
refused "/nowhere.json" "$topo" --json /nowhere.json
echo '{"format": "tutti-topology 1", "nodes": [{"kind": "gpu", "parent": -1}]}' >"$dir/bad.json"
refused "line 1" "$topo" --json "$dir/bad.json"
refused "only one of" "$topo" --json a --xml b
refused "must end in" "$topo" -o picture.png
refused "--explain" "$topo" -n 3
refused "--ranks" "$topo" -e -n 0
refused "colour is unknown" "$topo" --colour
refused "-o needs a value" "$topo" -o
refused "extra is no flag" "$topo" extra
exit $failed
