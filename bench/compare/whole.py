"""`./dev compare --all`: every comparison that docs/measurements/host shows, part by part, and a
page that sums them up.

A part that was measured with this build before is not measured again (--again does), and what was
interrupted goes on at the round where it stopped; --rounds adds rounds to what there is; --parts
chooses. Each part is given PART_SECONDS, but at least three rounds."""

import hashlib
import json
import os
import time

import compare
import contenders
import present
import verdict
from rounds import minutes, say

PART_SECONDS = 240
LIBRARY, ALL_KINDS = "library", "library,registered,malloc"
OTHERS = ("broadcast", "reduce_scatter", "all_gather")
MORE = ("reduce", "all_to_all", "gather", "scatter", "sendrecv",
        "all_gather_v", "reduce_scatter_v", "all_to_all_v", "gather_v", "scatter_v")
PAGES = os.path.join(compare.TOP, "docs", "measurements", "host")


def part(coll, ranks, memory, *more):
    return ["--coll", coll, "--ranks", str(ranks), "--memory", memory, *more]


PARTS = {"all_reduce_2": part("all_reduce", 2, ALL_KINDS)}
PARTS.update({f"{coll}_2": part(coll, 2, "library,malloc") for coll in OTHERS})
# Where the system puts four ranks on two cores makes two kinds of times, and rounds would mix them.
PARTS.update({f"{coll}_4": part(coll, 4, "library,malloc", "--cores", "even")
              for coll in ("all_reduce",) + OTHERS})
PARTS["all_reduce_2_rewrite"] = part("all_reduce", 2, LIBRARY, "--rewrite")
# In a broadcast the root runs ahead, so that single operations say nothing; rewriting ends in a barrier.
PARTS["broadcast_4_rewrite"] = part("broadcast", 4, "library,malloc", "--rewrite")
for ranks, cores in ((2, ()), (4, ("--cores", "even"))):
    PARTS.update({f"{coll}_{ranks}": part(coll, ranks, "library,malloc", *cores) for coll in MORE})
PARTS["all_reduce_2_tcp"] = part("all_reduce", 2, LIBRARY, "--transport", "tcp")
PARTS["startup"] = ["--startup"]
LONGEST_MINUTES = len(PARTS) * PART_SECONDS // 60


def build_of(flags):
    """What a measured part belongs to: our program, and the harness' own programs."""
    digest = hashlib.sha256()
    for program in ("allreduce_bench", "ideal", "peer_openmpi", "peer_mpich", "peer_gloo"):
        path = contenders.program_path(flags.build, program)
        if os.path.exists(path):
            with open(path, "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()


def kept_path(flags, name):
    return os.path.join(flags.build, "compare", "all", name + ".json")


def kept(flags, name):
    """The record of a part, or None."""
    try:
        with open(kept_path(flags, name), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def keep(flags, name, record):
    path = kept_path(flags, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.replace(path + ".new", path)


def is_whole(flags, record):
    return record.get("whole") and not (flags.rounds_given and record.get("rounds", 0) < flags.rounds)


def measured(flags, name, arguments, build, before):
    """The part's record, measured now or before; or begun before, by rounds, and gone on with."""
    record = kept(flags, name)
    wanted = {"build": build, "arguments": arguments}
    begun = record if record and record.get("part") == wanted and not flags.again else None
    if begun and is_whole(flags, begun):
        say(f"compare: {before}measured before, with this build")
        return begun
    if name == "startup":
        import startup
        record = startup.record_of(flags, before)
    else:
        mine = compare.parse_flags(arguments + ["--build", flags.build] +
                                   (["--rounds", str(flags.rounds)] if flags.rounds_given else []))
        record = compare.record_of(mine, arguments, before, begun,
                                   lambda part: keep(flags, name, {**part, "part": wanted}))
    record.update(part=wanted, whole=True)
    keep(flags, name, record)
    return record


def arguments_of(flags, name):
    if name == "startup":
        return PARTS[name]
    arguments = PARTS[name] + ["--seconds", str(flags.seconds or PART_SECONDS)]
    if flags.sizes:
        arguments += ["--sizes", ",".join(map(str, flags.sizes))]
    if flags.quick:
        arguments += ["--quick"]
    return arguments


# ---- the page --------------------------------------------------------------------------------------

def cell(row, key):
    return f"{row[key]:.2f} at {present.size_text(row['size'])}" if row else ""


def line_of(single, judged):
    rows = [row for row in judged["rows"] if row["ratio"]]
    least = min(rows, key=lambda row: row["ratio"]) if rows else None
    cells = [f"[{single['coll']}]({compare.stem_of(single)}.md)", str(single["ranks"]), single["transport"],
             single["memory"] + (", inputs rewritten" if single.get("rewrite") else ""),
             f"{len(rows)} of {len(judged['rows'])}",
             f"{judged['ratio']:.2f}" if judged["ratio"] else "",
             f"{judged['best_over_bound']:.2f}" if judged["best_over_bound"] else "", cell(least, "ratio"),
             cell(present.worst(judged, "over_ideal", present.LARGE), "over_ideal"),
             cell(present.worst(judged, "over_synced", present.LARGE), "over_synced"),
             cell(present.worst(judged, "tail"), "tail")]
    return "| " + " | ".join(cells) + " |"


def summary_page(records):
    lines = ["# Measured on one host", "",
             "Tutti beside the best setting of the best peer (Open MPI, MPICH; over TCP also Gloo) and the "
             "ideal fused direct collective, by `./dev compare --all`. How: "
             "[bench/compare](../../../bench/compare/README.md).", "",
             "| operation | ranks | transport | memory | sizes with a ratio | geometric mean of peer/ours | "
             "of peer/limit | least peer/ours | worst ours/ideal from 64 KiB | "
             f"worst ours/(ideal + {verdict.HOPS} hops) from 64 KiB | worst p99/median |",
             "|---|---:|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    facts = {}
    for record in records:
        facts.update({k: v for k, v in record["facts"].items() if k in ("machine", "Open MPI", "MPICH", "Gloo")})
        facts.setdefault("Tutti", set()).add(record["facts"].get("Tutti", ""))
        facts.setdefault("dates", set()).add(record["facts"]["date"][:10])
        for memory in record["memory"].split(","):
            single = compare.one_memory(record, memory)
            lines.append(line_of(single, verdict.judge(single)))
    lines += ["", "[Start-up and memory of 2 to 64 ranks](startup.md).", ""]
    lines += [f"- {name}: {', '.join(sorted(value)) if isinstance(value, set) else value}"
              for name, value in facts.items()]
    return "\n".join(lines) + "\n"


def write_summary(flags, folder):
    records = [kept(flags, name) for name in PARTS if name != "startup"]
    records = [record for record in records if record and record["samples"]]
    if records:
        with open(os.path.join(folder, "README.md"), "w", encoding="utf-8") as file:
            file.write(summary_page(records))


# ---- all parts -------------------------------------------------------------------------------------

def chosen(flags):
    names = flags.parts.split(",") if flags.parts else list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise SystemExit(f"compare: --parts {','.join(unknown)}: the parts are {', '.join(PARTS)}")
    return names


def write_part(name, record, folder):
    if name == "startup":
        import startup
        return startup.report(record, folder)
    return compare.report(record, folder)


def main(flags):
    if flags.parts == "list":
        print("\n".join(f"{name}: ./dev compare {' '.join(PARTS[name])}" for name in PARTS))
        return 0
    names, build, begin, bad = chosen(flags), build_of(flags), time.monotonic(), []
    folder = flags.out if flags.out_given else PAGES
    say(f"compare: {len(names)} parts of about {minutes(flags.seconds or PART_SECONDS)}; stop it when you "
        "like, it goes on where it was")
    for number, name in enumerate(names):
        gone = time.monotonic() - begin
        before = f"part {number + 1} of {len(names)} ({name}, {minutes(gone)} so far): "
        try:
            record = measured(flags, name, arguments_of(flags, name), build, before)
            good = write_part(name, record, folder)
        except (OSError, ValueError, KeyError) as error:
            say(f"compare: part {name} FAILED: {error!r}")
            good = False
        bad += [] if good else [name]
        write_summary(flags, folder)
    print(f"Summary: {os.path.join(folder, 'README.md')}")
    if bad:
        print(f"Parts with a size without a ratio, or that failed: {', '.join(bad)}")
    return 1 if bad else 0
