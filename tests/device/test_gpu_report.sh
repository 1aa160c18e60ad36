#!/usr/bin/env bash
# gpu_report: packs the programs, runs the packed ones on the simulated device, writes both reports with a
# verdict for each target; a test that fails makes it fail, and a target that is missed is said.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$TUTTI_SOURCE/bench/gpu/gpu_report" --build "$TUTTI_BUILD" --pack "$work/pack.tar.xz"
tar xf "$work/pack.tar.xz" -C "$work"
# ./dev gpu builds all that the report runs.
PYTHONDONTWRITEBYTECODE=1 python3 - "$TUTTI_SOURCE" <<'BUILT'
import importlib.machinery, importlib.util, re, sys
path = sys.argv[1] + "/bench/gpu/gpu_report"
sys.path.insert(0, sys.argv[1] + "/bench/gpu")
spec = importlib.util.spec_from_loader("gpu_report", importlib.machinery.SourceFileLoader("gpu_report", path))
report = importlib.util.module_from_spec(spec)
spec.loader.exec_module(report)
built = re.search(r"^cmd_gpu\(\) \{\n(.*?)^\}", open(sys.argv[1] + "/dev").read(), re.M | re.S).group(1).split()
missing = [name for name in [*report.programs_of_tests(), report.BENCH, report.SWEEP] if name not in built]
assert not missing, f"./dev gpu does not build {missing}"
BUILT

# Tests that run by themselves, too (all but one of them): here they say that they were found, and by whom.
for name in test_gpu_reduce test_gpu_all_reduce test_gpu_withdraw test_gpu_processes test_gpu_passing \
    test_gpu_calls test_gpu_capture test_gpu_plans test_gpu_pairs test_gpu_roots test_gpu_lifetime test_operations test_uneven random_programs test_ddp_device test_gpt_device; do
    [ -x "$work/pack/tests/$name" ]
    printf '#!/bin/sh\n[ "$TUTTI_TEST_GPU$TUTTI_DEVICE" = simsim ] || exit 1\necho ran\n' >"$work/pack/tests/$name"
done
"$work/pack/gpu_report" --device sim --bytes 8192 --ranks 2 --out "$work/out" >"$work/log" || {
    cat "$work/log"
    exit 1
}
grep -q "test_gpu_all_reduce .* passed" "$work/out/report.txt"
grep -q "all-reduce, two-shot, graph" "$work/out/report.txt"
grep -q "all passed" "$work/out/report.txt"
python3 -c 'import json, sys
report = json.load(open(sys.argv[1]))
assert report["passed"] and len(report["bench"]["lines"]) > 30, report
runs = [(s["ranks"], s["kind"], s["graph"]) for s in report["sweeps"] if s["collective"] == "all_reduce"]
messages = [s for s in report["sweeps"] if s["collective"] == "sendrecv"]
assert [(s["ranks"], s["kind"]) for s in messages] == [(2, "threads"), (2, "processes")], messages
assert all(len(s["rows"]) == 2 for s in messages), messages
assert runs == [(2, "threads", True)] * 2 + [(1, "threads", False)] + \
    [(4, "2 hosts, levels", False), (4, "2 hosts, staged", False)] + \
    [(2, kind, graph) for kind in ("threads", "processes") for graph in (False, True)], runs
assert [s["operations"] for s in report["sweeps"][:3]] == [1, 20, 1], report["sweeps"]
alone = [s["collective"] for s in report["sweeps"] if s["ranks"] == 1]
assert alone == ["all_reduce", "broadcast", "all_gather", "reduce_scatter"], alone
assert all(len(s["rows"]) == 2 for s in report["sweeps"][6:]), report["sweeps"]
assert len(report["targets"]) == 7, report["targets"]
assert report["targets"][6]["verdict"] == "not measured", report["targets"]
# Of 2, 3, 4 and 8 ranks, only 2 were tried.
assert report["targets"][0]["verdict"] == "not measured", report["targets"]' "$work/out/report.json"

# Targets, by figures of known verdict.
PYTHONDONTWRITEBYTECODE=1 python3 - "$work/pack" <<'EOF'
import sys
sys.path.insert(0, sys.argv[1])
import gpu_targets as t

def report(us_large, us_small, factor, over, word="passed", step=10.2):
    sweep = lambda ranks, kind, graph, rows: {"collective": "all_reduce", "ranks": ranks, "kind": kind, "graph": graph,
                                              "rows": [{"size": s, "us": us} for s, us in rows]}
    sweeps = [{**sweep(1, "threads", False, [(256 << 20, 140 + over)]), "collective": c} for c in t.ALONE]
    said = [f"{word} {name}_{ranks}: # Avg bus bandwidth : 1" for name in t.CLIENTS for ranks in (2, 4)]
    said += [f"passed torch_ddp_1: result ddp 1 processes: {step:.3f} ms a step, all", "stock NCCL: result ddp 1 processes: 10.000 ms a step"]
    for ranks in t.RANKS:
        sweeps += [sweep(ranks, "threads", False, [(t.LARGE, us_large), (t.PROCESSES_FROM, 100)]),
                   {**sweep(ranks, "threads", True, [(t.SMALL, us_small)]), "operations": 20},
                   sweep(ranks, "threads", True, [(t.SMALL, 3 * us_small)]),
                   sweep(ranks, "processes", False, [(t.PROCESSES_FROM, 100 * factor)]),
                   sweep(ranks, t.MAPPED, False, [(t.PROCESSES_FROM, 100 * factor)])]
    return {"gpus": 1, "sweeps": sweeps, "tests": [
        {"test": f"every operation, {ranks} {kind}", "passed": True}
        for ranks in t.RANKS for kind in ("threads", "processes")],
        "clients": {"output": "\n".join(said)},
        # What caches hold is faster, and no floor.
        "bench": {"lines": [{"what": "copy by the driver", "bytes": 256 << 20, "us": 140, "GBps": 4000},
                            {"what": "copy by the driver", "bytes": 16 << 20, "us": 5, "GBps": 6000}]}}

# 4 ranks that share a GPU of 4000 GB/s: 2 * 256 MiB each, so 536.9 us.
assert abs(t.floor_us(t.LARGE, 4, 1, 4000) - 536.87) < 0.01
words = lambda *figures: [v["verdict"] for v in t.verdicts(report(*figures))]
assert words(600, 9, 1.9, 2) == ["met"] * 7, words(600, 9, 1.9, 2)
assert words(700, 11, 2.1, 4, "FAILED") == ["met"] + ["missed"] * 6, words(700, 11, 2.1, 4, "FAILED")
assert words(600, 9, 1.9, 2, "passed", 10.4)[6] == "missed"
# What was left out is not measured.
out = report(600, 9, 1.9, 2)
out["tests"][3]["passed"] = None
del out["clients"]
assert [v["verdict"] for v in t.verdicts(out)] == ["not measured"] + ["met"] * 5 + ["not measured"]
# As older ones are, whose sweeps do not say how many operations a graph has.
old = report(600, 9, 1.9, 2)
for sweep in old["sweeps"]:
    sweep.update(passed=True, rows=[{**row, "wrong": 0} for row in sweep["rows"]])
assert any("2 threads x 20" in line for line in t.sweeps_text(old))
EOF

# A program of the pack's, which leaves another behind, in a process group of its own.
planted() { # WHAT ELSE IT DOES
    printf '#!/bin/bash\nset -m\ntimeout 300 sleep 300 &\necho $! >%s/left.new; mv %s/left.new %s/left\necho planted; %s\n' \
        "$work" "$work" "$work" "$1" >"$work/pack/tests/test_gpu"
    rm -f "$work/left"
}
gone() { # of the one it left
    local state # of one that has ended, and that nobody has asked for yet: Z
    [ -s "$work/left" ]
    state=$(sed 's/.*) \(.\).*/\1/' "/proc/$(cat "$work/left")/stat" 2>/dev/null) || state=none
    [ "$state" = none ] || [ "$state" = Z ] || {
        echo "FAILED: what a program has started was left: $(cat "$work/left"), $state"
        exit 1
    }
}
planted 'exit 3'
if "$work/pack/gpu_report" --device sim --parts tests --ranks 2 --out "$work/out" >"$work/log"; then
    cat "$work/log"
    echo "FAILED: a test that fails was not reported"
    exit 1
fi
grep -q "| planted" "$work/out/report.txt"
gone
# Ended from outside, it ends what it has started.
planted 'sleep 300'
"$work/pack/gpu_report" --device sim --parts tests --ranks 2 --out "$work/out" >"$work/log" &
report=$!
for ((k = 0; k < 600; k++)); do
    [ -s "$work/left" ] && break
    sleep 0.1
done
kill -TERM $report
status=0
wait $report || status=$?
[ $status = 143 ] || { echo "FAILED: ended with $status, not 143"; exit 1; }
gone
# What programs made for NCCL need is there, and it says so where there is no GPU.
[ -x "$work/pack/bin/tuttirun" ]
for name in checks collectives models train failures; do
    [ -f "$work/pack/clients/torch_$name.py" ] || { echo "FAILED: torch_$name.py is not packed"; exit 1; }
done
"$work/pack/clients/nccl_clients" --library "$work/pack/nccl" --out "$work/logs" >"$work/log" || {
    cat "$work/log"
    exit 1
}
if "$work/pack/gpu_report" --device sim --parts tests --ranks 2 --minutes 0.001 --out "$work/out" >"$work/log"; then
    cat "$work/log"
    echo "FAILED: nothing was run in time, and all passed"
    exit 1
fi
grep -q "| LEFT OUT" "$work/out/report.txt"
grep -q "left out" "$work/out/report.txt"
# What an earlier one has goes before.
"$work/pack/gpu_report" --device sim --parts smoke --ranks 2 --bytes 8192 --out "$work/first" >"$work/log"
"$work/pack/gpu_report" --device sim --parts targets --ranks 2 --bytes 8192 --out "$work/second" --add "$work/first/report.json" >"$work/log"
grep -q "every operation, 2 processes .* passed" "$work/second/report.txt"
grep -q "one rank alone" "$work/second/report.txt"
# Where there is no driver it says so, and ends.
without() { # WHAT IT SAYS, VARIABLES
    local status=0
    (cd "$work" && env "${@:2}" timeout 60 "$work/pack/gpu_report" >"$work/log" 2>&1) || status=$?
    [ $status = 1 ] && grep -q "$1" "$work/log" && grep -q "nothing else was run" "$work/log" || {
        cat "$work/log"
        echo "FAILED: ended with $status without a GPU"
        exit 1
    }
}
without "cannot load no-such-driver.so" TUTTI_LIBCUDA=no-such-driver.so
ldconfig -p | grep -q libcuda.so.1 || [ -d /usr/local/nvidia ] || without "no CUDA driver: libcuda.so.1"
echo "gpu_report: as expected"
