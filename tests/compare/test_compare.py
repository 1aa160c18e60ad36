#!/usr/bin/env python3
"""compare.py on canned samples: medians and geometric means are right; wrong results, noise and
missed rounds leave no ratio and say why; the files are written; sizes and commands are as asked."""

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
import verdict

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
            "failures": [], "samples": samples,
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
        self.assertAlmostEqual(rows[8]["noise"], 0.02)

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

    def test_noise(self):
        for label, name in ((OURS, "ours"), (FAST, FAST)):
            record = canned()
            for s, factor in zip(of(record, label, 8), (1, 1.6, 0.7, 1.5, 0.8)):
                s["p50_us"] *= factor
            self.refused(record, 8, f"noisy: {name}")

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
        line = "| 64 KiB | 10.00 | 30.00 | 80.00 | MPICH, default | 8.00 | 8.00 | 1.25 | 2% |"
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

    def test_sizes_and_groups(self):
        sizes = compare.sweep_sizes(self.flags())
        self.assertEqual((sizes[0], sizes[-1], len(sizes)), (8, 256 << 20, 26))
        self.assertEqual(compare.sweep_sizes(self.flags("--sizes", "1M,8,64K")), [8, 65536, 1 << 20])
        self.assertEqual(compare.sweep_sizes(self.flags("--coll", "all_gather", "--ranks", "4"))[0], 16)
        groups = compare.groups_of(sizes, self.flags(), 2)
        self.assertEqual([s for group in groups for s in group], sizes)
        self.assertLessEqual(max(map(len, groups)), 6)
        alone = compare.groups_of(sizes, self.flags("--together", "1"), 2)
        self.assertEqual(alone, [[size] for size in sizes])

    def test_every_collective_has_peers_and_unique_labels(self):
        for coll in compare.COLLECTIVES:
            for transport in ("shm", "tcp"):
                settings = contenders.all_settings(coll, transport)
                labels = [s.label() for s in settings]
                self.assertEqual(len(labels), len(set(labels)))
                for size in (16, 4096, 1 << 20, 256 << 20):
                    peers = {s.peer for s in settings if s.plays(size) and s.kind() == "peer"}
                    self.assertTrue({"Open MPI", "MPICH"} <= peers, (coll, transport, size))

    def test_rows_of_our_own_program(self):
        row = {"size": 8, "out_of_place": {"p50_us": 1, "p99_us": 2, "time_us": 3, "wrong": 0},
               "in_place": {"p50_us": 4, "p99_us": 5, "time_us": 6, "wrong": 1}}
        text = json.dumps({"rows": [row]})
        self.assertEqual(compare.ours_rows(text, [8], "all_reduce"), [
            {"size": 8, "p50_us": 1, "p99_us": 2, "mean_us": 3, "wrong": 0}])
        self.assertEqual(compare.ours_rows(text, [8], "broadcast")[0]["wrong"], 1)
        self.assertRaises(compare.Failed, compare.ours_rows, text, [8, 16], "all_reduce")

    def test_a_run_that_hangs_or_fails_is_told(self):
        job = contenders.Job("/nowhere", "all_reduce", 2, "shm", "library", 2, False)
        setting = contenders.Setting("Gloo", "ring", "peer_gloo")
        self.assertRaises(OSError, compare.run_setting, job, setting, [8], (1, 1))
        before, compare.RUN_SECONDS = compare.RUN_SECONDS, 0.2
        try:
            self.assertRaises(compare.Failed, compare.run, ["sleep", "20"], {})
        finally:
            compare.RUN_SECONDS = before


if __name__ == "__main__":
    unittest.main()
