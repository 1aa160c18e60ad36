"""The table of faults.py, as a document and as JSON."""
import json
import os
import platform
import re


def cell(text):
    """Text for a table of Markdown: pids and ports are chance."""
    text = re.sub(r"\(([\w.-]+):\d+\)", r"(\1:PID)", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    return text.replace("|", "\\|").replace("\n", " ")


def errors_of(row):
    """Each error once, with those who have it."""
    found = {}
    for record in row["survivors"]:
        if record["code"]:
            found.setdefault(cell(record["text"]), []).append(str(record["rank"]))
    return "<br>".join(f"rank {', '.join(ranks)}: `{text}`" for text, ranks in found.items())


def times_of(row):
    """Seconds to the error on each survivor, or that there was none."""
    return ", ".join(f"{record['rank']}: " + (f"{record['seconds']:.2f}" if record["code"] and
                                              record["seconds"] is not None else "none")
                     for record in row["survivors"])


def left_of(row):
    """What was left behind, by rank and outside."""
    left = [f"rank {record['rank']}: {text}" for record in row["survivors"]
            for text in record["left"]] + row["left"]
    return "; ".join(map(cell, left)) or "nothing"


def line_of(number, row):
    """One row."""
    if "skipped" in row:
        return f"| {number} | {row['fault']} | {row['transport']} | not run: {row['skipped']} |||||"
    said = errors_of(row)
    if row.get("note"):
        said = "<br>".join(filter(None, [cell(row["note"]), said]))
    shrunk = [r for r in row["survivors"] if r.get("shrunk")]
    if shrunk:
        said += f"<br>then a sum over {shrunk[0]['shrunk']}"
    state = "as it must be" if not row["wrong"] else "**" + cell("; ".join(row["wrong"])) + "**"
    return (f"| {number} | {row['fault']} | {row['transport']} | {said or 'no error, right sums'} | "
            f"{times_of(row)} | {row.get('limit_s', '')} | {left_of(row)} | {state} |")


def write(folder, rows, timeout, init_timeout):
    """faults.md and faults.json."""
    bad = sum(bool(row.get("wrong")) for row in rows)
    skipped = sum("skipped" in row for row in rows)
    with open(os.path.join(folder, "faults.json"), "w", encoding="utf-8") as file:
        json.dump({"timeout_s": timeout, "init_timeout_s": init_timeout, "rows": rows}, file,
                  indent=1)
        file.write("\n")
    head = f"""# What befalls a job, and what its ranks are told

`./dev faults` wrote this page and [faults.json](faults.json): {len(rows)} runs, {bad} of them not as they must be, {skipped} not run, on Linux {platform.release().split("-")[0]} ({os.cpu_count()} cores). What to do in each case: [failures.md](../failures.md).

A row is one real run of three ranks (processes) that sum 1 MiB again and again, with `TUTTI_TIMEOUT={timeout}` and `TUTTI_INIT_TIMEOUT={init_timeout}`. *device* is the simulated GPU, whose ranks talk over shared memory on one host. *rdma* is soft-RoCE in an emulated machine, where ranks are given 20 s to meet (`./dev rdma table`, then `./dev faults --rdma build/rdma-rows`); cut cables there: `./dev rdma faults`. Seconds are from the fault to the error, on each rank that lives; *bound* is what a rank may take (the deadline that applies, and 2 s in which ranks hear each other out). *Left behind* counts descriptors, threads and mapped segments in each surviving process after its communicator is destroyed, and processes, sockets, files in /dev/shm and /tmp after all have ended, in a network and mounts that the run has to itself.

| # | Fault | Transport | What the others are told | Seconds | Bound | Left behind | Verdict |
|--:|---|---|---|---|--:|---|---|
"""
    lines = [line_of(number, row) for number, row in enumerate(rows, 1)]
    with open(os.path.join(folder, "faults.md"), "w", encoding="utf-8") as file:
        file.write(head + "\n".join(lines) + "\n")
