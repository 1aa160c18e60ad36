#!/usr/bin/env python3
"""Training speed of examples/transformer beside PyTorch DDP over Gloo: the same model, weights, data,
batch and threads, runs interleaved, medians. Needs a Python with PyTorch (pip install torch) and a
release build.

    examples/compare/compare_torch.py --size small --batch 8 --rounds 3

Each side runs with several settings, and its best counts: buckets of 25 and of 4 MiB, PyTorch also
through torch.compile. A third is PyTorch with its own DDP over the backend "tutti" in Gloo's place. Losses of
all must be the same but for rounding, or there is no table."""

import argparse
import statistics

import contest


def kind_of(contender):
    """0: Tutti's transformer; 1: PyTorch over Gloo; 2: PyTorch over Tutti."""
    return 0 if not contender.torch else 2 if "tutti" in contender.flags else 1


def contenders(o):
    made = []
    for bucket in o.buckets.split(","):
        made.append(contest.Contender(f"Tutti, buckets of {bucket} MiB", False, ["--bucket", bucket]))
        made.append(contest.Contender(f"PyTorch DDP, {bucket} MiB", True, ["--bucket", bucket]))
        made.append(contest.Contender(f"PyTorch DDP over tutti, {bucket} MiB", True,
                                      ["--bucket", bucket, "--backend", "tutti"]))
    if not o.no_compile:
        made.append(contest.Contender(f"PyTorch DDP, torch.compile, {o.buckets.split(',')[0]} MiB", True,
                                      ["--compile", "--bucket", o.buckets.split(",")[0]]))
    return made


def page(o, all_of_them, apart):
    tokens = o.batch * (o.context or {"tiny": 128, "small": 256, "gpt2": 1024}[o.size])
    lines = [f"{o.size}, {tokens} tokens a step, {o.ranks} ranks with {o.cores} thread"
             f"{'s' if o.cores > 1 else ''} each; median of {len(all_of_them[0].medians)} interleaved rounds of "
             f"{o.steps - contest.WARM} steps", contest.versions(o),
             f"losses are {apart[0]:.1e} apart in the first step, {apart[1]:.1e} at most", "",
             "| | ms a step | spread | tokens/s |", "|---|---|---|---|"]
    speed = {}
    for c in all_of_them:
        ms = statistics.median(c.medians)
        speed[c] = tokens / ms * 1e3
        lines.append(f"| {c.name} | {ms:.1f} | {min(c.medians):.1f} .. {max(c.medians):.1f} | "
                     f"{speed[c]:.0f} |")
    ours, theirs, over = (max((c for c in all_of_them if kind_of(c) == kind), key=speed.get) for kind in range(3))
    lines += [""]
    for who, best in (("Tutti makes", ours), ("PyTorch over Tutti makes", over)):
        ratios = [b / a for a, b in zip(best.medians, theirs.medians)]
        lines += [f"best of each, round by round: {who} {statistics.median(ratios):.2f} "
                  f"({min(ratios):.2f} .. {max(ratios):.2f}) times the tokens/s of PyTorch over Gloo"]
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    contest.common_flags(p, "small", 8, 20, 2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--buckets", default="25,4", help="MiB; each is tried")
    p.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    o = p.parse_args()
    o.shape = contest.shape_of(o)
    both = contenders(o)
    with contest.temporary() as folder:
        data = contest.text(folder)
        weights = contest.weights_for(o, folder, data)
        for _ in range(o.rounds):
            for c in both:
                contest.run(c, o, folder, data, weights)
                print(f"  {c.name}: {c.medians[-1]:.1f} ms", flush=True)
            contest.put_out(o, page(o, both, contest.same_losses(both, 0.05)))


main()
