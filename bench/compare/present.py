"""What people read: the Markdown table, and the plot by gnuplot."""

import shutil
import subprocess

import contenders
import verdict as judging


def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def us_text(us):
    return f"{us:.3f}" if us < 1 else f"{us:.2f}" if us < 100 else f"{us:.0f}"


def title(record):
    text = f"{record['coll']}, {record['ranks']} ranks, {record['transport']}, {record['memory']} memory"
    text += f", {record['place']} of place".replace("in of", "in") if "place" in record else ""
    return text + (", inputs rewritten" if record.get("rewrite") else "")


def number(value):
    return f"{value:.2f}" if value else ""


def table(record, verdict):
    other = judging.FIGURES[judging.other_figure(record)]
    limit = any(row["over_ideal"] for row in verdict["rows"])
    synced = any(row["over_synced"] for row in verdict["rows"])
    bound = any(row["bound_us"] for row in verdict["rows"])
    kinds = any(row["cores"] for row in verdict["rows"])
    heads = ["size"] + ["cores"] * kinds + ["ours us", "ours p99", "best peer us", "which", "ratio peer/ours",
             f"ratio by {other}"] + ["ideal us", "ours/ideal"] * limit + \
        [f"ours/(ideal + {judging.HOPS} hops)"] * synced + ["limit us", "peer/limit"] * bound + ["noise"]
    lines = ["| " + " | ".join(heads) + " |",
             "|" + "|".join("---" if head in ("which", "cores") else "---:" for head in heads) + "|"]
    for row in verdict["rows"]:
        ours, best = row["ours"], row["best"]
        # A figure of wrong results is no figure.
        cells = [size_text(row["size"])]
        if kinds:
            runs = [str(len(f["by_round"])) if f else "0" for f in (ours, best)]
            cells.append(f"{row['cores']} {'/'.join(runs)}")
        cells += [us_text(ours["us"]), us_text(ours["p99_us"])] if ours and not ours["wrong"] else ["-", "-"]
        cells += [us_text(best["us"]), best["label"]] if best and not best["wrong"] else ["-", "-"]
        cells += [number(row["ratio"]) or row["why"], number(row["other_ratio"])]
        if limit:
            cells += [us_text(row["ideal"]["us"]) if row["over_ideal"] else "", number(row["over_ideal"])]
        if synced:
            cells.append(number(row["over_synced"]))
        if bound:
            cells += [us_text(row["bound_us"]) if row["bound_us"] else "", number(row["best_over_bound"])]
        cells.append(f"{row['noise']:.0%}" if row["noise"] is not None else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


LARGE = 64 << 10


def worst(verdict, key, least_size=0):
    """The row with the largest figure of this kind, or None."""
    rows = [row for row in verdict["rows"] if row[key] and row["size"] >= least_size]
    return max(rows, key=lambda row: row[key]) if rows else None


def summary(record, verdict):
    rows = verdict["rows"]
    with_ratio = [row for row in rows if row["ratio"]]
    lines = [f"Sizes with a ratio: {len(with_ratio)} of {len(rows)}."]
    if verdict["ratio"]:
        least = min(with_ratio, key=lambda row: row["ratio"])
        lines.append(f"Geometric mean of peer/ours: {verdict['ratio']:.2f}; least "
                     f"{least['ratio']:.2f}, at {size_text(least['size'])}. By "
                     f"{judging.FIGURES[judging.other_figure(record)]}: {verdict['other_ratio']:.2f}.")
    for key, name in (("over_ideal", "ours/ideal"),
                      ("over_synced", f"ours/(ideal + {judging.HOPS} hops)")):
        if verdict[key]:
            most = worst(verdict, key, LARGE)
            lines.append(f"Geometric mean of {name}: {verdict[key]:.2f}" +
                         (f"; from 64 KiB up at worst {most[key]:.2f}, at {size_text(most['size'])}."
                          if most else "."))
    if verdict["best_over_bound"]:
        count = sum(1 for row in rows if row["best_over_bound"])
        lines.append(f"The best conceivable library would show a geometric mean of peer/limit of "
                     f"{verdict['best_over_bound']:.2f} over the {count} sizes that have both; ours over "
                     f"the same: {verdict['ratio_where_bound']:.2f}.")
    most = worst(verdict, "tail")
    if most:
        lines.append(f"Our p99 over our median: at worst {most['tail']:.1f}, at {size_text(most['size'])}.")
    return " ".join(lines)


def limit_text(record, verdict):
    """What the column of that name counts."""
    if not any(row["bound_us"] for row in verdict["rows"]):
        return ""
    text = " Limit: the least time possible, from measurements of the same round: "
    if any(c["kind"] == "exchange" for c in record["contenders"]):
        look = ", timed with two looks at the clock as operations are" if record["figure"] == "p50_us" else ""
        text += (f"the longer of an exchange of one cache line between two cores (each tells the other, both "
                 f"at once{look}) and the ideal; below {size_text(contenders.IDEAL_FROM)} the exchange alone, "
                 "as if the bytes came for nothing")
    else:
        text += "the ideal"
    return text + ". It is a bound, and no claim that it can be reached."


def markdown(record, verdict, picture=None):
    lines = [f"# Compared: {title(record)}", ""]
    lines += [f"- {name}: {value}" for name, value in record["facts"].items()]
    lines += [f"- MISSING, not measured: {peer}: {why}" for peer, why in record["missing"].items()]
    lines += [f"- FAILED, left out: {failure}" for failure in sorted(set(record["failures"]))]
    what = {"p50_us": "the median of operations timed one by one",
            "mean_us": "the mean of a batch of operations"}[record["figure"]]
    if judging.hop_us(record):
        lines.append(f"- core to core: {judging.hop_us(record) * 1e3:.0f} ns one way, median of "
                     f"{len(record['hops_ns'])}")
    border = judging.border_of(record)
    if border:
        lines.append("- the cores changed their places on the host while this ran: " + ", ".join(
            f"{kind} each other, {judging.hop_us(record, kind, border) * 1e3:.0f} ns one way, in "
            f"{sum(judging.kind_of(s, border) == kind for s in record['samples'])} of "
            f"{len(record['samples'])} runs" for kind in ("near", "far")) +
            ". Only runs of one kind are compared; *cores* says of which, and how many of ours and of the peer")
    lines += ["", f"![{title(record)}]({picture})"] if picture else []
    lines += ["", f"Figures: {what}, averaged over the ranks; then the median of {record['rounds']} rounds, in which all "
              "contenders run in a random order. p99: the worst rank's, median of the rounds. Ratios: "
              "the median of those of each round; noise: their interquartile range over that. A peer's best "
              "setting at each size counts; one that another was much faster than at all sizes of a "
              "group is left out after the first round." + limit_text(record, verdict), "", table(record, verdict), "", summary(record, verdict), "",
              "Settings:", ""]
    for c in record["contenders"]:
        setting = " ".join([f"{k}={v}" for k, v in c.get("env", {}).items()] + c.get("flags", []))
        lines.append(f"- {c['label']}: `{setting}`" if setting else f"- {c['label']}")
    return "\n".join(lines) + "\n"


# ---- the plot --------------------------------------------------------------------------------------

def best_of(row, labels):
    values = [row["figures"][name]["us"] for name in labels
              if name in row["figures"] and not row["figures"][name]["wrong"]]
    return min(values) if values else None


def curves(record, verdict):
    """{name: (points, gnuplot style)} of times, in the order of the key."""
    rows, found = verdict["rows"], {}
    peers = {}
    for c in record["contenders"]:
        if c["kind"] == "peer":
            peers.setdefault(c["peer"], []).append(c["label"])
    shades = iter(("#f0a030", "#c04040", "#9060a0"))
    ours = [c["label"] for c in record["contenders"] if c["kind"] == "ours"]
    found["Tutti"] = ([(r["size"], best_of(r, ours)) for r in rows], "lw 3 pt 7 ps 0.5 lc rgb '#1060c0'")
    for peer, labels in peers.items():
        found[f"{peer}, best setting"] = ([(r["size"], best_of(r, labels)) for r in rows],
                                          f"lw 2 pt 7 ps 0.4 lc rgb '{next(shades)}'")
    limits = [c["label"] for c in record["contenders"] if c["kind"] == "limit"]
    ideal = [(r["size"], best_of(r, limits)) for r in rows]
    found["ideal"] = (ideal, "lw 2 dt 2 pt -1 lc rgb '#208040'")
    hop = judging.hop_us(record)
    if hop:
        found[f"ideal + {judging.HOPS} hops"] = (
            [(size, us and us + judging.HOPS * hop) for size, us in ideal],
            "lw 2 pt -1 lc rgb '#208040'")
    return {name: (points, style) for name, (points, style) in found.items()
            if any(us for _, us in points)}


def gnuplot_script(record, verdict, path):
    found = curves(record, verdict)
    lines = []
    for index, (points, _) in enumerate(found.values()):
        lines += [f"$curve{index} << END"] + [f"{size} {us}" for size, us in points if us] + ["END"]
    rows = verdict["rows"]
    lines += ["$ratio << END"] + [f"{r['size']} {r['ratio']}" for r in rows if r["ratio"]] + ["END"]
    lines += ["$refused << END"] + [f"{r['size']} 1" for r in rows if not r["ratio"]] + ["END"]
    mean = verdict["ratio"]
    quoted, first, last = path.replace("'", "''"), rows[0]["size"] / 1.4, rows[-1]["size"] * 1.4
    ticks = ", ".join(f"'{size_text(size)}' {size}" for size in (8 << 4 * i for i in range(8)))
    lines += ["set terminal svg size 1100,480 font 'sans,12' background rgb 'white'", f"set output '{quoted}'",
              f"set multiplot layout 1,2 title '{title(record)}' noenhanced",
              "set logscale x 2", f"set xtics ({ticks}) rotate by -30", "set grid",
              f"set xrange [{first}:{last}]", "set key top left reverse Left",
              "set title 'time of an operation (us): lower is better' noenhanced", "set logscale y 10",
              "plot " + ", ".join(f"$curve{index} using 1:2 with linespoints {style} title '{name}'"
                                  for index, (name, (_, style)) in enumerate(found.items()))]
    if mean:
        most = max(row["ratio"] for row in rows if row["ratio"])
        lines += ["unset logscale y", f"set yrange [0:{max(most, 1) * 1.25}]",
                  "set title 'best peer / ours: above 1 ours is faster' noenhanced",
                  "plot 1 with lines lw 2 lc rgb '#808080' title 'equal', "
                  f"{mean} with lines lw 1 dt 2 lc rgb '#1060c0' title 'geometric mean {mean:.2f}', "
                  "$ratio using 1:2 with linespoints lw 3 pt 7 ps 0.6 lc rgb '#1060c0' "
                  "title 'best peer / ours'" +
                  (", $refused using 1:2 with points pt 2 lc rgb '#c04040' title 'refused'"
                   if any(not row["ratio"] for row in rows) else "")]
    lines.append("unset multiplot")
    return "\n".join(lines) + "\n"


def plot(record, verdict, path):
    """Whether the plot was drawn."""
    if not shutil.which("gnuplot") or not verdict["rows"]:
        return False
    done = subprocess.run(["gnuplot", "-"], input=gnuplot_script(record, verdict, path), text=True)
    return done.returncode == 0
