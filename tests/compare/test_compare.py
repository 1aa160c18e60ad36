#!/usr/bin/env python3
"""compare.py on canned samples: medians and geometric means are right; wrong results, noise and
missed rounds leave no ratio and say why; the files are written; sizes and commands are as asked."""

import contextlib
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
FOLDER = os.path.join(os.environ["TUTTI_SOURCE"], "bench", "compare")
sys.path.insert(0, FOLDER)
import compare
import contenders
import present
import rounds
import startup
import verdict
import whole

OURS, FAST, SLOW, IDEAL = "Tutti", "Open MPI, boxes", "MPICH, default", "ideal fused direct"


def sample(label, size, number, us, wrong=0):
    return {"contender": label, "size": size, "round": number, "p50_us": us, "p99_us": 3 * us,
            "mean_us": 2 * us, "wrong": wrong}


def canned():
    """Ours 1 us at 8 B and 10 at 64 KiB; the best peer 2 and 80; the ideal 8 at 64 KiB."""
    samples = []
    for number, drift in enumerate((1.0, 1.02, 0.98, 1.01, 0.99)):
        for label, small, large in ((OURS, 1, 10), (FAST, 2, 100), (SLOW, 4, 80)):
            samples += [sample(label, 8, number, small * drift), sample(label, 65536, number, large * drift)]
        samples.append(sample(IDEAL, 65536, number, 8 * drift))
    kinds = {OURS: "ours", FAST: "peer", SLOW: "peer", IDEAL: "limit"}
    return {"coll": "all_reduce", "ranks": 2, "transport": "shm", "memory": "library", "rounds": 5,
            "noise_limit": 0.25, "figure": "p50_us", "facts": {"machine": "canned"}, "missing": {},
            "failures": [], "hops_ns": [90, 100, 400], "samples": samples,
            "contenders": [{"label": label, "peer": label.split(",")[0], "kind": kind}
                           for label, kind in kinds.items()]}


def of(record, label, size):
    return [s for s in record["samples"] if s["contender"] == label and s["size"] == size]


class Verdict(unittest.TestCase):
    def rows(self, record):
        judged = verdict.judge(record)
        return judged, {row["size"]: row for row in judged["rows"]}

    def refused(self, record, size, why):
        judged, rows = self.rows(record)
        self.assertIsNone(rows[size]["ratio"])
        self.assertIn(why, rows[size]["why"])
        return judged, rows

    def test_medians_and_best_peer(self):
        judged, rows = self.rows(canned())
        self.assertAlmostEqual(rows[8]["ratio"], 2)
        self.assertAlmostEqual(rows[65536]["ratio"], 8)
        self.assertEqual([rows[8]["best"]["label"], rows[65536]["best"]["label"]], [FAST, SLOW])
        self.assertAlmostEqual(judged["ratio"], 4)
        self.assertAlmostEqual(rows[65536]["over_ideal"], 1.25)
        self.assertIsNone(rows[8]["over_ideal"])
        # Two hops of 0.1 us, the median of those measured, beside an ideal of 8.
        self.assertAlmostEqual(rows[65536]["over_synced"], 10 / 8.2)
        self.assertAlmostEqual(rows[65536]["tail"], 3)
        self.assertAlmostEqual(rows[8]["noise"], 0)

    def test_the_limit_is_the_longer_of_exchange_and_ideal(self):
        record, name = canned(), "exchange of a line"
        record["contenders"].append({"label": name, "peer": name, "kind": "exchange"})
        record["samples"] += [sample(name, size, number, 0.5) for number in range(5) for size in (8, 65536)]
        judged, rows = self.rows(record)
        self.assertAlmostEqual(rows[8]["bound_us"], 0.5)
        self.assertAlmostEqual(rows[65536]["bound_us"], 8)
        self.assertAlmostEqual(rows[8]["best_over_bound"], 4)
        self.assertAlmostEqual(rows[65536]["best_over_bound"], 10)
        self.assertAlmostEqual(judged["best_over_bound"], 40 ** 0.5)
        self.assertAlmostEqual(judged["ratio_where_bound"], 4)
        text = present.markdown(record, judged)
        self.assertIn("peer/limit of 6.32 over the 2 sizes that have both; ours over the same: 4.00.", text)
        self.assertIn("| 0.500 | 4.00 |", text)

    def test_one_bad_round_moves_nothing(self):
        record = canned()
        of(record, OURS, 8)[2]["p50_us"] = 1000
        _, rows = self.rows(record)
        self.assertLess(abs(rows[8]["ratio"] - 2), 0.05)

    def test_the_figure_asked_for_is_compared(self):
        record = canned()
        record["figure"] = "mean_us"
        for s in of(record, OURS, 8):
            s["mean_us"] /= 4
        _, rows = self.rows(record)
        self.assertAlmostEqual(rows[8]["ratio"], 8)
        self.assertAlmostEqual(rows[8]["other_ratio"], 2)

    def test_wrong_results(self):
        for label in (OURS, FAST, SLOW, IDEAL):
            record = canned()
            of(record, label, 65536)[3]["wrong"] = 7
            judged, rows = self.refused(record, 65536, "wrong results: " + label)
            self.assertAlmostEqual(rows[8]["ratio"], 2)
            self.assertAlmostEqual(judged["ratio"], 2)
        record = canned()
        of(record, OURS, 8)[0]["wrong"] = None
        self.refused(record, 8, "wrong results: " + OURS)

    def test_a_slow_machine_slows_both(self):
        record = canned()
        for s in of(record, OURS, 8) + of(record, FAST, 8) + of(record, SLOW, 8):
            s["p50_us"] *= (1, 1, 2, 3, 2)[s["round"]]
        _, rows = self.rows(record)
        self.assertAlmostEqual(rows[8]["ratio"], 2)

    def test_noise(self):
        for label in (OURS, FAST):
            record = canned()
            for s, factor in zip(of(record, label, 8), (1, 1.6, 0.7, 1.5, 0.8)):
                s["p50_us"] *= factor
            self.refused(record, 8, "noisy: the ratio by ")

    def test_near_and_far_cores_are_not_compared(self):
        """Ours has 3 runs near and 2 far, the peers 4 and 1: near counts, and far takes twice as long."""
        record = canned()
        for s in record["samples"]:
            far = s["round"] in ((1, 4) if s["contender"] == OURS else (2,))
            s["hops_ns"] = [200, 210] if far else [50, 70]
            s["p50_us"] *= 2 if far else 1
        judged, rows = self.rows(record)
        self.assertEqual([rows[8]["cores"], len(rows[8]["ours"]["by_round"]), len(rows[8]["best"]["by_round"])],
                         ["near", 3, 4])
        self.assertLess(abs(rows[8]["ratio"] - 2), 0.05)
        self.assertLess(rows[8]["noise"], 0.05)
        self.assertAlmostEqual(rows[65536]["over_synced"], 10 / 8.12, delta=0.05)
        self.assertIn("near each other, 60 ns one way, in 26 of 35 runs, far each other, 205 ns",
                      present.markdown(record, judged))
        for s in of(record, SLOW, 8):  # seen far only, where it is nearly the best
            s.update(hops_ns=[200, 210], p50_us=4.5)
        of(record, FAST, 8)[2]["p50_us"] = 4.0
        self.refused(record, 8, SLOW + " has not run with the cores near")
        of(record, OURS, 8)[0]["hops_ns"] = of(record, OURS, 8)[2]["hops_ns"] = [50, 210]
        self.refused(record, 8, "ran only once with the cores ")

    def test_an_ideal_of_other_cores_leaves_no_limit(self):
        """An exchange of a line is no bound for 64 KiB because the ideal ran with the cores far only."""
        record, name = canned(), "exchange of a line"
        record["contenders"].append({"label": name, "peer": name, "kind": "exchange"})
        record["samples"] += [sample(name, size, number, 0.5) for number in range(5) for size in (8, 65536)]
        for s in record["samples"]:
            s["hops_ns"] = [200, 210] if s["contender"] == IDEAL else [50, 70]
        _, rows = self.rows(record)
        self.assertAlmostEqual(rows[8]["bound_us"], 0.5)
        self.assertIsNone(rows[65536]["bound_us"])
        for s in record["samples"]:
            s.update(hops_ns=[50, 70], wrong=int(s["contender"] == IDEAL))
        self.assertIsNone(self.rows(record)[1][65536]["bound_us"])

    def test_missed_rounds_and_absent_contenders(self):
        record = canned()
        record["samples"].remove(of(record, FAST, 8)[0])
        self.refused(record, 8, "ran in 4 of 5 rounds")
        record = canned()
        record["samples"] = [s for s in record["samples"] if s["contender"] != OURS]
        self.refused(record, 8, "ours did not run")
        record = canned()
        record["samples"] = [s for s in record["samples"] if s["contender"] in (OURS, IDEAL)]
        self.refused(record, 8, "no peer ran")


class Program(unittest.TestCase):
    def replay(self, record):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "canned.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(record, file)
            done = subprocess.run([os.path.join(FOLDER, "compare.py"), "--replay", path, "--out", folder],
                                  capture_output=True, text=True)
            with open(os.path.join(folder, "all_reduce_2_shm_library.md"), encoding="utf-8") as file:
                return done, file.read()

    def test_table(self):
        done, markdown = self.replay(canned())
        self.assertEqual(done.returncode, 0, done.stderr)
        line = "| 64 KiB | 10.00 | 30.00 | 80.00 | MPICH, default | 8.00 | 8.00 | 8.00 | 1.25 | 1.22 | 8.00 | 10.00 | 0% |"
        self.assertIn(line, done.stdout)
        self.assertIn(line, markdown)
        self.assertIn("Geometric mean of peer/ours: 4.00", markdown)

    def test_refusal_is_shown_and_fails(self):
        record = canned()
        of(record, SLOW, 65536)[0]["wrong"] = 1
        record["missing"] = {"Gloo": "not built"}
        done, markdown = self.replay(record)
        self.assertEqual(done.returncode, 1)
        self.assertIn("wrong results: MPICH, default", done.stdout)
        self.assertIn("MISSING, not measured: Gloo: not built", markdown)
        self.assertNotIn("80.00", markdown)


class Runs(unittest.TestCase):
    def flags(self, *arguments):
        return compare.parse_flags(list(arguments))

    def job(self, **more):
        return contenders.Job("/nowhere", "all_reduce", 2, "shm", 2, **more)

    def test_sizes_and_groups(self):
        sizes = compare.sweep_sizes(self.flags())
        self.assertEqual((sizes[0], sizes[-1], len(sizes)), (8, 256 << 20, 26))
        self.assertEqual(compare.sweep_sizes(self.flags("--sizes", "1M,8,64K")), [8, 65536, 1 << 20])
        self.assertEqual(compare.sweep_sizes(self.flags("--coll", "all_gather", "--ranks", "4"))[0], 16)
        groups = rounds.groups_of(sizes, self.job(), 6)
        self.assertEqual([s for group in groups for s in group], sizes)
        self.assertLessEqual(max(map(len, groups)), 6)
        self.assertEqual(rounds.groups_of(sizes, self.job(), 1), [[size] for size in sizes])

    def test_what_is_compared(self):
        self.assertEqual([self.flags("--coll", c).place for c in ("all_reduce", "broadcast")], ["out", "in"])
        self.assertEqual(self.flags("--coll", "broadcast").figure, "mean_us")
        self.assertEqual(self.flags("--coll", "broadcast", "--rewrite").figure, "p50_us")
        self.assertEqual(self.flags("--memory", "malloc,library").memories, ["malloc", "library"])
        for wrong in (["--memory", "hbm"], ["--memory", "malloc,malloc"], ["-f", "1"], ["--ranks", "1"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                self.flags(*wrong)

    def test_all_contenders_get_the_same_mode(self):
        job = self.job(in_place=True, rewrite=True)
        for setting in contenders.all_settings("all_reduce", "shm"):
            if setting.kind() == "ours":
                command = contenders.ours_command(job, "library", [8, 16], (1, 1), "x.json")
            else:
                command = contenders.peer_command(job, setting, [8, 16], (1, 1))
                self.assertIn("--in-place", command)
            self.assertIn("--rewrite", command)

    def test_all_contenders_share_cores_alike(self):
        """Each is given the core that the rank's number says, and nobody where cores suffice."""
        job = contenders.Job("/nowhere", "all_reduce", 3, "shm", 2, even=True)
        two = sorted(os.sched_getaffinity(0))[:2]
        for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"):
            for rank in range(3):
                command = job.placed() + [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
                done = subprocess.run(command, env={"PATH": os.environ["PATH"], name: str(rank)},
                                      capture_output=True, text=True, check=True)
                if len(two) == 2:
                    self.assertEqual(done.stdout.split(), [str(two[rank % 2])])
        for setting in contenders.all_settings("all_reduce", "tcp"):
            ours = setting.kind() == "ours"
            command = (contenders.ours_command(job, "library", [8], (1, 1), "x.json") if ours
                       else contenders.peer_command(job, setting, [8], (1, 1)))
            self.assertTrue("placed" in command or "--bind" in command, command)
            if ours:
                self.assertEqual(command[0], "/nowhere/bin/tuttirun")
        self.assertEqual(self.job(even=True).placed(), [])

    def test_every_collective_has_peers_and_unique_labels(self):
        for coll, transport, ranks in itertools.product(compare.COLLECTIVES, ("shm", "tcp"), (2, 3, 4)):
            settings = contenders.all_settings(coll, transport, ranks, 2, ("library", "malloc"))
            labels = [s.label() for s in settings]
            self.assertEqual(len(labels), len(set(labels)))
            for size in (16, 4096, 1 << 20, 256 << 20):
                peers = {s.peer for s in settings if s.plays(size) and s.kind() == "peer"}
                self.assertTrue({"Open MPI", "MPICH"} <= peers, (coll, transport, size))

    def test_rows_of_our_own_program(self):
        row = {"size": 8, "out_of_place": {"p50_us": 1, "p99_us": 2, "time_us": 3, "wrong": 0},
               "in_place": {"p50_us": 4, "p99_us": 5, "time_us": 6, "wrong": 1}}
        text = json.dumps({"rows": [row]})
        self.assertEqual(rounds.ours_rows(text, [8], False), [
            {"size": 8, "p50_us": 1, "p99_us": 2, "mean_us": 3, "wrong": 0}])
        self.assertEqual(rounds.ours_rows(text, [8], True)[0]["wrong"], 1)
        self.assertRaises(rounds.Failed, rounds.ours_rows, text, [8, 16], False)

    def test_a_run_that_hangs_or_fails_is_told(self):
        setting = contenders.Setting("Gloo", "ring", "peer_gloo")
        self.assertRaises(OSError, rounds.run_setting, self.job(), setting, [8], (1, 1))
        self.assertRaises(rounds.Failed, rounds.run, ["sleep", "20"], {}, 0.2)

    def test_only_what_is_far_behind_everywhere_is_left_out(self):
        names = ("near", "far", "far at one size", "wrong")
        settings = [contenders.Setting(name, "", "peer_gloo") for name in names]
        times = {"near": (1, 1), "far": (3, 9), "far at one size": (9, 1.5), "wrong": (0.1, 0.1)}
        record = {"figure": "p50_us", "samples": [sample(name, size, 0, times[name][i], name == "wrong")
                                                  for name in names for i, size in enumerate((8, 16))]}
        self.assertEqual(rounds.hopeless(record, [8, 16], settings), {"far"})

    def test_kinds_of_memory_are_told_apart(self):
        record = canned()
        record["memory"] = "library,malloc"
        record["contenders"][0].update(label="Tutti, library", memory="library")
        record["contenders"].append({"label": "Tutti, malloc", "peer": "Tutti", "kind": "ours",
                                     "memory": "malloc"})
        for s in of(record, OURS, 8) + of(record, OURS, 65536):
            s["contender"] = "Tutti, library"
            record["samples"].append({**s, "contender": "Tutti, malloc", "p50_us": 4 * s["p50_us"]})
        ratios = [verdict.judge(compare.one_memory(record, memory))["ratio"]
                  for memory in ("library", "malloc")]
        self.assertAlmostEqual(ratios[0], 4)
        self.assertAlmostEqual(ratios[1], 1)


class Startup(unittest.TestCase):
    def test_page_of_canned_samples(self):
        samples = [{"contender": name, "ranks": count, "round": number, "init_ms": count, "ready_ms": ms * count,
                    "first_ms": 9, "exit_ms": 9, "pss": 1 << 20, "pss_all": 2 << 20}
                   for name, ms in (("Tutti", 2), ("Open MPI", 8), ("MPICH", 6))
                   for count in (2, 4) for number in range(3)]
        record = {"counts": [2, 4], "rounds": 3, "samples": samples, "failures": [], "missing": [], "facts": {}}
        self.assertEqual(startup.ratios(record), [(3, 2), (3, 4)])
        text = startup.page(record, None)
        self.assertIn("| 4 | 4.0 | 4.0 | 4.0 | 8.0 | 32.0 | 24.0 |", text)
        self.assertIn("at least 3.0 times our time", text)


# A program that takes part as ours or as a peer, whose times and errors are planted: PLANT is
# {size: [factor of round 0, of round 1, ...]}, WRONG a list of sizes. It starts hundreds of times, so
# without what a session's Python loads.
STAND_IN = f"#!{sys.executable} -ISB" + """
import json, os, sys
place = os.path.dirname(os.path.abspath(__file__))
def after(flag):
    return sys.argv[sys.argv.index(flag) + 1]
plant = json.load(open(__file__ + ".plant"))
ours = "--json" in sys.argv
size, sizes = int(after("-b")) if ours else 0, []
while ours and size <= int(after("-e")):
    sizes.append(size)
    size *= 2
sizes = sizes or [int(size) for size in after("--sizes").split(",")]
turns = json.load(open(__file__ + ".turns")) if os.path.exists(__file__ + ".turns") else {}
rows = []
for size in sizes:
    turn = turns.get(str(size), 0)
    turns[str(size)] = turn + 1
    factors = plant["times"].get(str(size), [1])
    us = plant["us"] * factors[turn % len(factors)]
    rows.append({"size": size, "p50_us": us, "p99_us": us, "mean_us": us, "time_us": us,
                 "wrong": 1 if size in plant["wrong"] else 0})
json.dump(turns, open(__file__ + ".turns", "w"))
if ours:
    json.dump({"rows": [{"out_of_place": row, "in_place": row} for row in rows]},
              open(after("--json"), "w"))
else:
    for row in rows:
        print(json.dumps(row))
"""


class Planted(unittest.TestCase):
    """The whole program, over stand-ins for ours and for a peer that needs no launcher."""

    def compare(self, ours, peer, *arguments, times=1, first=()):
        """`times` runs, of which those before the last have `first` at the end."""
        with tempfile.TemporaryDirectory() as build:
            for name, plant in (("bin/allreduce_bench", ours), ("compare/peer_gloo", peer)):
                path = os.path.join(build, name)
                os.makedirs(os.path.dirname(path))
                with open(path, "w", encoding="utf-8") as file:
                    file.write(STAND_IN)
                with open(path + ".plant", "w", encoding="utf-8") as file:
                    json.dump({"us": 1, "times": {}, "wrong": [], **plant}, file)
                os.chmod(path, 0o755)
            command = [os.path.join(FOLDER, "compare.py"), "--build", build, "--coll", "all_gather",
                       "--transport", "tcp", "--sizes", "64K,1M,16M", "--rounds", "4", *arguments]
            for left in range(times - 1, -1, -1):
                done = subprocess.run(command + list(first) * (left > 0), capture_output=True, text=True)
            return done

    def line(self, done, size):
        return next(line for line in done.stdout.splitlines() if line.startswith(f"| {size} |"))

    def test_good_runs_have_ratios(self):
        done = self.compare({}, {"us": 3})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("| 3.00 | Gloo | 3.00 |", self.line(done, "1 MiB"))
        self.assertIn("Sizes with a ratio: 3 of 3", done.stdout)

    def test_a_wrong_peer(self):
        done = self.compare({}, {"us": 3, "wrong": [1 << 20]})
        self.assertEqual(done.returncode, 1)
        self.assertIn("wrong results: Gloo", self.line(done, "1 MiB"))
        self.assertNotIn("3.00", self.line(done, "1 MiB"))
        self.assertIn("| 3.00 | Gloo | 3.00 |", self.line(done, "64 KiB"))

    def test_noisy_runs(self):
        for ours, peer, who in (({}, {"us": 3, "times": {str(1 << 20): [1, 2, 1, 2]}}, "Gloo"),
                                ({"times": {str(1 << 20): [1, 2, 1, 2]}}, {"us": 3}, "ours")):
            whose = f"{who} by 67%"
            done = self.compare(ours, peer)
            self.assertEqual(done.returncode, 1)
            self.assertIn("noisy: the ratio by 67%", self.line(done, "1 MiB"))
            self.assertIn(whose, self.line(done, "1 MiB"))
            self.assertIn("| 3.00 |", self.line(done, "64 KiB"))

    def test_all_goes_on_where_it_was(self):
        with tempfile.TemporaryDirectory() as pages:
            more = ["--all", "--parts", "all_reduce_2_tcp", "--out", pages]
            done = self.compare({}, {"us": 3}, *more)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(os.path.join(pages, "README.md"), encoding="utf-8") as file:
                self.assertIn("| 3 of 3 | 3.00 |  | 3.00 at ", file.read())
            self.assertIn("all_reduce_2_tcp", whole.PARTS)
            self.assertEqual(sorted(os.listdir(pages))[:2],
                             ["README.md", "all_reduce_2_tcp_library.md"])
            self.assertNotIn("measured before", done.stderr)
            done = self.compare({}, {"us": 3}, *more, times=2)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("measured before", done.stderr)
            self.assertNotIn("round", done.stderr)
            self.assertIn("| 3.00 |", done.stdout)

    def test_all_adds_rounds(self):
        with tempfile.TemporaryDirectory() as pages:
            done = self.compare({}, {"us": 3}, "--all", "--parts", "all_reduce_2_tcp", "--out", pages,
                                times=2, first=["--rounds", "2"])
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertNotIn("round 2 of", done.stderr)
            self.assertIn("round 3 of 4", done.stderr)
            with open(os.path.join(pages, "all_reduce_2_tcp_library.md"), encoding="utf-8") as file:
                self.assertIn("the median of 4 rounds", file.read())


if __name__ == "__main__":
    unittest.main()
