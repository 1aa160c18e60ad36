"""What people read: the Markdown table, and the plot by gnuplot."""

import shutil
import subprocess

import verdict as judging


def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def us_text(us):
    return f"{us:.3f}" if us < 1 else f"{us:.2f}" if us < 100 else f"{us:.0f}"


def title(record):
    return (f"{record['coll']}, {record['ranks']} ranks, {record['transport']}, "
            f"{record['memory']} memory")


def table(record, verdict):
    other = judging.FIGURES[judging.other_figure(record)]
    lines = ["| size | ours us | ours p99 | best peer us | which | ratio peer/ours | "
             f"ratio by {other} | ours/ideal | noise |", "|---:|---:|---:|---:|---|---:|---:|---:|---:|"]
    for row in verdict["rows"]:
        ours, best = row["ours"], row["best"]
        # A figure of wrong results is no figure.
        cells = [size_text(row["size"])]
        cells += [us_text(ours["us"]), us_text(ours["p99_us"])] if ours and not ours["wrong"] else ["-", "-"]
        cells += [us_text(best["us"]), best["label"]] if best and not best["wrong"] else ["-", "-"]
        cells.append(f"{row['ratio']:.2f}" if row["ratio"] else row["why"])
        cells.append(f"{row['other_ratio']:.2f}" if row["other_ratio"] else "")
        cells.append(f"{row['over_ideal']:.2f}" if row["over_ideal"] else "")
        cells.append(f"{row['noise']:.0%}" if row["noise"] is not None else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary(record, verdict):
    rows = verdict["rows"]
    with_ratio = [row for row in rows if row["ratio"]]
    lines = [f"Sizes with a ratio: {len(with_ratio)} of {len(rows)}."]
    if verdict["ratio"]:
        least = min(with_ratio, key=lambda row: row["ratio"])
        lines.append(f"Geometric mean of peer/ours: {verdict['ratio']:.2f}; least "
                     f"{least['ratio']:.2f}, at {size_text(least['size'])}. By "
                     f"{judging.FIGURES[judging.other_figure(record)]}: {verdict['other_ratio']:.2f}.")
    if verdict["over_ideal"]:
        large = [row for row in rows if row["over_ideal"] and row["size"] >= 64 << 10]
        lines.append(f"Geometric mean of ours/ideal: {verdict['over_ideal']:.2f}.")
        if large:
            worst = max(large, key=lambda row: row["over_ideal"])
            lines.append(f"From 64 KiB up, at worst {worst['over_ideal']:.2f}, at "
                         f"{size_text(worst['size'])}.")
    return " ".join(lines)


def markdown(record, verdict):
    lines = [f"# Compared: {title(record)}", ""]
    lines += [f"- {name}: {value}" for name, value in record["facts"].items()]
    lines += [f"- MISSING, not measured: {peer}: {why}" for peer, why in record["missing"].items()]
    lines += [f"- FAILED, left out: {failure}" for failure in sorted(set(record["failures"]))]
    what = {"p50_us": "the median of operations timed one by one",
            "mean_us": "the mean of a batch of operations"}[record["figure"]]
    lines += ["", f"Figures: {what}, averaged over the ranks; then the median of {record['rounds']} rounds, in which all "
              "contenders run in a random order. p99: the worst rank's, median of the rounds. Noise: "
              "interquartile range over median, the larger of ours and the best peer's. A peer's best "
              "setting at each size counts.", "", table(record, verdict), "", summary(record, verdict), "",
              "Settings:", ""]
    for c in record["contenders"]:
        setting = " ".join([f"{k}={v}" for k, v in c.get("env", {}).items()] + c.get("flags", []))
        lines.append(f"- {c['label']}: `{setting}`" if setting else f"- {c['label']}")
    return "\n".join(lines) + "\n"


# ---- the plot --------------------------------------------------------------------------------------

def best_of(row, peer, record):
    labels = [c["label"] for c in record["contenders"] if c["peer"] == peer]
    values = [row["figures"][name]["us"] for name in labels
              if name in row["figures"] and not row["figures"][name]["wrong"]]
    return min(values) if values else None


def gnuplot_script(record, verdict, path):
    peers = list(dict.fromkeys(c["peer"] for c in record["contenders"]))
    lines = []
    for number, peer in enumerate(peers):
        lines.append(f"$peer{number} << END")
        points = [(row["size"], best_of(row, peer, record)) for row in verdict["rows"]]
        lines += [f"{size} {us}" for size, us in points if us]
        lines.append("END")
    lines.append("$ratio << END")
    lines += [f"{row['size']} {row['ratio']}" for row in verdict["rows"] if row["ratio"]]
    lines.append("END")
    quoted = path.replace("'", "''")
    lines += ["set terminal svg size 1000,460 background rgb 'white'", f"set output '{quoted}'",
              f"set multiplot layout 1,2 title '{title(record)}' noenhanced",
              "set logscale x 2", "set format x '%.0b %BB'", "set xtics rotate by -45", "set grid",
              "set xlabel 'size'", "set key top left", "set ylabel 'time of an operation (us)'",
              "set logscale y 10"]
    measured = [n for n, peer in enumerate(peers)
                if any(best_of(row, peer, record) for row in verdict["rows"])]
    lines.append("plot " + ", ".join(
        f"$peer{n} using 1:2 with linespoints pt 7 ps 0.5 lw 2 title '{peers[n]}'" for n in measured))
    if any(row["ratio"] for row in verdict["rows"]):
        lines += ["unset logscale y", "set yrange [0:*]", "set ylabel 'best peer / ours'",
                  "plot $ratio using 1:2 with linespoints pt 7 ps 0.5 lw 2 title 'best peer / ours', "
                  "1 with lines lc rgb 'gray' title 'equal'"]
    lines.append("unset multiplot")
    return "\n".join(lines) + "\n"


def plot(record, verdict, path):
    """Whether the plot was drawn."""
    if not shutil.which("gnuplot") or not verdict["rows"]:
        return False
    done = subprocess.run(["gnuplot", "-"], input=gnuplot_script(record, verdict, path), text=True)
    return done.returncode == 0
