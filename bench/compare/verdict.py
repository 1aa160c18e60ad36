"""From samples to a verdict for each size: a ratio, or why there is none.

A sample is one size in one round of one contender: {"contender": label, "size", "round", "p50_us",
"p99_us", "mean_us", "wrong"}. The figure of a contender at a size is the median over the rounds. A
ratio of two is the median of their ratios in each round, so that a machine that is slower for some
minutes slows both; its noise is the interquartile range of those ratios over their median.

A virtual machine's cores may change their places on the host: then a cache line takes four times as long
from one to the other, small operations twice as long, and large ones half, because each core has a
last-level cache of its own. That happens within seconds, so each run has "hops_ns", measured right before
and after it. Where the hops of a record fall into two kinds, near and far, runs of different kinds are not
compared: at each size the kind counts of which there are more runs of both, whatever they say; figures are
medians of those, ratios are made of all pairs of them, and runs during which the cores moved are left out.
"""

import math
import statistics


FIGURES = {"p50_us": "median", "mean_us": "mean"}  # of operations in a run, by the samples' key


def other_figure(record):
    return "mean_us" if record["figure"] == "p50_us" else "p50_us"


def median_and_noise(values):
    middle = statistics.median(values)
    if len(values) < 2 or middle <= 0:
        return middle, 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, (high - low) / middle


# ---- near and far -----------------------------------------------------------------------------------

LEAST_GAP = 1.5  # between hops of two kinds
FEW_HOPS = 3     # so many by themselves are no kind


def border_of(record):
    """Nanoseconds between the hops of runs with near and with far cores: in the middle of the widest gap;
    None where there is but one kind."""
    hops = sorted(hop for sample in record["samples"] for hop in sample.get("hops_ns", ()))
    gaps = [(high / low, math.sqrt(low * high))
            for low, high in zip(hops[FEW_HOPS - 1:-FEW_HOPS], hops[FEW_HOPS:])]
    widest, middle = max(gaps, default=(0, None))
    return middle if widest >= LEAST_GAP else None


def kind_of(sample, border):
    """"near", "far" or, when the cores moved meanwhile, ""."""
    kinds = {"far" if hop > border else "near" for hop in sample.get("hops_ns", ())}
    return kinds.pop() if len(kinds) == 1 else ""


def most_runs(record, samples, border):
    """The kind of which ours and the best peer have most runs."""
    roles = {c["label"]: c["kind"] for c in record["contenders"]}

    def runs(kind):
        times = {}
        for s in samples:
            if kind_of(s, border) == kind:
                times.setdefault(s["contender"], []).append(s[record["figure"]])
        ours = max((len(t) for label, t in times.items() if roles[label] == "ours"), default=0)
        peers = [t for label, t in times.items() if roles[label] == "peer"]
        return min(ours, len(min(peers, key=statistics.median))) if peers else 0

    return max(("near", "far"), key=runs)


def figures(record, size, kind="", border=None):
    """{label: {"us", "noise", "p99_us", "wrong"}} of those that were measured at this size. "rounds" and
    "wrong" are of all runs, the rest is of those of the kind."""
    found = {}
    for sample in record["samples"]:
        if sample["size"] == size:
            found.setdefault(sample["contender"], []).append(sample)
    runs = {label: len(samples) for label, samples in found.items()}
    wrong = {label: any(s["wrong"] != 0 for s in samples) for label, samples in found.items()}
    if kind:
        found = {label: [s for s in samples if kind_of(s, border) == kind] for label, samples in found.items()}
        found = {label: samples for label, samples in found.items() if samples}
    for label, samples in found.items():
        us, noise = median_and_noise([s[record["figure"]] for s in samples])
        found[label] = {"us": us, "noise": noise, "rounds": runs[label], "crossed": bool(kind),
                        "p50_us": statistics.median(s["p50_us"] for s in samples),
                        "p99_us": statistics.median(s["p99_us"] for s in samples),
                        "other_us": statistics.median(s[other_figure(record)] for s in samples),
                        # What was not checked counts as wrong.
                        "by_round": {s["round"]: s[record["figure"]] for s in samples},
                        "wrong": wrong[label]}
    return found


def paired(over, under, more=0.0):
    """(median, noise) of over/(under + more), round by round, or of all pairs; None where there are none."""
    if over["crossed"]:
        values = [us / (least + more) for us in over["by_round"].values()
                  for least in under["by_round"].values() if least > 0]
        return median_and_noise(values) if values else None
    values = [us / (under["by_round"][number] + more) for number, us in over["by_round"].items()
              if under["by_round"].get(number, 0) > 0]
    return median_and_noise(values) if values else None


LEAST_RUNS = 2  # of a kind, for a ratio
HOPS = 2  # no rank can end before another's word that it began, nor before one that it has read


def hop_us(record, kind="", border=None):
    """A cache line from core to core, one way: the median over the rounds of this run, or around the runs of
    a kind."""
    hops = record.get("hops_ns")
    if kind:
        hops = [hop for s in record["samples"] if kind_of(s, border) == kind for hop in s["hops_ns"]]
    return statistics.median(hops) / 1e3 if hops else None


def bounds(ideal, exchange):
    """The least possible time in each round, {round: us}: no operation in which each rank needs something
    of the other ends before both have told each other one cache line, nor before the cores have read and
    stored what there is to read and store. The longer of the two counts and not their sum, so that
    nobody can say that a cleverer overlap would beat it."""
    if any(figure and figure["crossed"] for figure in (ideal, exchange)):
        known = [figure["us"] for figure in (ideal, exchange) if figure and not figure["wrong"]]
        return {0: max(known)} if known else {}
    known = [figure["by_round"] for figure in (ideal, exchange) if figure and not figure["wrong"]]
    rounds = set.intersection(*map(set, known)) if known else set()
    return {number: max(times[number] for times in known) for number in rounds}


def judge_bound(record, row, exchange):
    """What the best conceivable library would show beside the best peer and beside ours."""
    times = bounds(row["ideal"], exchange)
    if not times:
        return
    row["bound_us"] = statistics.median(times.values())
    bound = {"by_round": times}
    if row["ratio"]:
        found = [steady(record, paired(row[who], bound)) for who in ("best", "ours")]
        if all(found):
            row["best_over_bound"], row["over_bound"] = found


RIVAL = 1.25  # times the best peer's time in the other kind: so near, it may be the best in this one


def not_seen(record, found, here, border, kind):
    """Peers' settings that did not run in this kind, and in the other one were among the best: without
    them the best peer would be chosen out of too few."""
    peers = {c["label"] for c in record["contenders"] if c["kind"] == "peer"}
    times = {}
    for s in here:
        if s["contender"] in peers and kind_of(s, border) not in (kind, ""):
            times.setdefault(s["contender"], []).append(s[record["figure"]])
    middles = {label: statistics.median(t) for label, t in times.items()}
    return sorted(label for label, us in middles.items()
                  if label not in found and us <= RIVAL * min(middles.values()))


def judge_size(record, size):
    kinds = {c["label"]: c["kind"] for c in record["contenders"]}
    border = border_of(record)
    here = [s for s in record["samples"] if s["size"] == size]
    kind = most_runs(record, here, border) if border else ""
    found = figures(record, size, kind, border)
    hop = hop_us(record, kind, border)
    row = {"size": size, "cores": kind, "ours": None, "best": None, "ratio": None, "other_ratio": None, "why": "", "ideal": None,
           "over_ideal": None, "over_synced": None, "tail": None, "noise": None, "figures": found,
           "bound_us": None, "best_over_bound": None, "over_bound": None}
    of_kind = {kind: [label for label in found if kinds[label] == kind]
               for kind in ("ours", "peer", "limit", "exchange")}
    for label in of_kind["ours"]:
        row["ours"] = found[label]
    if of_kind["peer"]:
        label = min(of_kind["peer"], key=lambda name: found[name]["us"])
        row["best"] = {"label": label, **found[label]}
    for label in of_kind["limit"]:
        row["ideal"] = found[label]
    if row["ours"] and row["best"]:
        found_ratio = paired(row["best"], row["ours"])
        row["noise"] = found_ratio[1] if found_ratio else None
    row["why"] = why_no_ratio(record, row, found)
    unseen = not_seen(record, found, here, border, kind) if kind else []
    if unseen and not row["why"]:
        row["why"] = f"{unseen[0]} has not run with the cores {kind}"
    if not row["why"]:
        row["ratio"] = found_ratio[0]
        # The peer that is best by the other figure may be another.
        row["other_ratio"] = min(found[p]["other_us"] for p in of_kind["peer"]) / row["ours"]["other_us"]
    # At a size that the ideal serves a line exchanged alone is no bound worth the name, if the ideal did
    # not run with the cores as they were, or wrongly.
    right = row["ideal"] and not row["ideal"]["wrong"]
    if right or not any(kinds[s["contender"]] == "limit" for s in here):
        judge_bound(record, row, next((found[label] for label in of_kind["exchange"]), None))
    if whole(record, row["ours"]):
        row["tail"] = row["ours"]["p99_us"] / row["ours"]["p50_us"]
        if whole(record, row["ideal"]):
            row["over_ideal"] = steady(record, paired(row["ours"], row["ideal"]))
            if hop:
                row["over_synced"] = steady(record, paired(row["ours"], row["ideal"], HOPS * hop))
    return row


def whole(record, figure):
    """Right, and there in every round."""
    return bool(figure) and not figure["wrong"] and figure["rounds"] >= record["rounds"] and \
        figure["us"] > 0 and figure["p50_us"] > 0


def steady(record, found):
    return found[0] if found and found[1] <= record["noise_limit"] else None


def why_no_ratio(record, row, found):
    wrong = sorted(label for label, figure in found.items() if figure["wrong"])
    if wrong:
        return "wrong results: " + "; ".join(wrong)
    if not row["ours"]:
        return "ours did not run"
    if not row["best"]:
        return "no peer ran"
    for name, figure in (("ours", row["ours"]), (row["best"]["label"], row["best"])):
        if figure["rounds"] < record["rounds"]:
            return f"{name} ran in {figure['rounds']} of {record['rounds']} rounds"
        if figure["crossed"] and len(figure["by_round"]) < LEAST_RUNS:
            return f"{name} ran only once with the cores {row['cores']}"
        if figure["us"] <= 0 or figure["other_us"] <= 0:
            return f"{name} took no time"
    limit = record["noise_limit"]
    if row["noise"] is None:
        return f"ours and {row['best']['label']} share no round"
    if row["noise"] > limit:
        return (f"noisy: the ratio by {row['noise']:.0%} between the runs (limit {limit:.0%}), ours by "
                f"{row['ours']['noise']:.0%}, {row['best']['label']} by {row['best']['noise']:.0%}")
    return ""


def judge(record):
    """All rows, and the geometric means over those that have a ratio."""
    rows = [judge_size(record, size) for size in sorted({s["size"] for s in record["samples"]})]
    return {"rows": rows, "ratio": mean_of(rows, "ratio"),
            "other_ratio": mean_of(rows, "other_ratio"), "over_ideal": mean_of(rows, "over_ideal"),
            "over_synced": mean_of(rows, "over_synced"),
            "best_over_bound": mean_of(rows, "best_over_bound"),
            "ratio_where_bound": mean_of([row for row in rows if row["best_over_bound"]], "ratio")}


def mean_of(rows, key):
    values = [row[key] for row in rows if row[key]]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
