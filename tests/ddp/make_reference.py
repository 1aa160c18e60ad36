#!/usr/bin/env python3
"""Writes tests/ddp/reference_numbers.h: what PyTorch computes for the optimizers, the distributed
sampler and the learning-rate schedules. Needs PyTorch (1.13 was used); run
it from anywhere: python3 tests/ddp/make_reference.py"""

import os

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR
from torch.utils.data.distributed import DistributedSampler

COUNT, STEPS = 8, 4


def numbers(values, form="%.9g"):
    return "{" + ", ".join(form % v for v in values) + "}"


def start():
    """The same formulas stand in test_optimizer.c."""
    param = torch.tensor([((i * 37) % 19 - 9) / 16 for i in range(COUNT)], dtype=torch.float32)
    grads = [torch.tensor([((i * 23 + step * 11) % 17 - 8) / 32 for i in range(COUNT)],
                          dtype=torch.float32) for step in range(STEPS)]
    return param, grads


def optimizer_row(kind, **settings):
    param, grads = start()
    param.requires_grad_()
    made = (torch.optim.SGD if kind == "TUTTI_SGD" else torch.optim.AdamW)([param], **settings)
    for grad in grads:
        param.grad = grad.clone()
        made.step()
    beta1, beta2 = settings.get("betas", (0.9, 0.999))
    return (f"{{{kind}, {settings['lr']}f, {settings.get('weight_decay', 0.0)}f, "
            f"{settings.get('momentum', 0.0)}f, {settings.get('dampening', 0.0)}f, "
            f"{str(settings.get('nesterov', False)).lower()}, {beta1}f, {beta2}f, "
            f"{numbers(param.tolist())}}},")


def optimizers():
    yield optimizer_row("TUTTI_SGD", lr=0.1)
    yield optimizer_row("TUTTI_SGD", lr=0.1, weight_decay=0.05)
    yield optimizer_row("TUTTI_SGD", lr=0.1, momentum=0.9)
    yield optimizer_row("TUTTI_SGD", lr=0.1, momentum=0.8, dampening=0.3, weight_decay=0.01)
    yield optimizer_row("TUTTI_SGD", lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    yield optimizer_row("TUTTI_ADAMW", lr=0.01, weight_decay=0.0)
    yield optimizer_row("TUTTI_ADAMW", lr=0.01, weight_decay=0.1, betas=(0.9, 0.95))


def samplers():
    for samples, ranks, seed, epoch, drop, in_order in (
            (10, 1, 0, 0, 0, 0), (10, 4, 0, 0, 0, 0), (10, 4, 0, 3, 0, 0), (10, 4, 7, 1, 1, 0),
            (3, 4, 1, 0, 0, 0), (2, 5, 0, 0, 0, 0), (12, 3, 5, 2, 1, 0), (11, 2, 0, 0, 0, 1)):
        rows = []
        for rank in range(ranks):
            sampler = DistributedSampler(range(samples), ranks, rank, not in_order, seed,
                                         bool(drop))
            sampler.set_epoch(epoch)
            rows.append(list(sampler))
        flat = [index for row in rows for index in row]
        yield (f"{{{samples}, {ranks}, {seed}, {epoch}, {drop}, {in_order}, {len(rows[0])}, "
               f"{numbers(flat, '%d')}}},")


def long_order():
    """Far into the generator: every 100th place of a permutation of 2,000."""
    sampler = DistributedSampler(range(2000), 1, 0, True, 42)
    sampler.set_epoch(8)
    return numbers(list(sampler)[::100], "%d")


def rates(scheduler, optimizer, steps=20):
    seen = []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return numbers(seen, "%.17g")


def schedules():
    def sgd():
        return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
    warm = lambda o: LambdaLR(o, lambda step: (step + 1) / 5)
    made = sgd()
    yield "TUTTI_CONSTANT", 0, rates(warm_then(made, warm, LambdaLR(made, lambda _: 1)), made)
    made = sgd()
    yield "TUTTI_LINEAR", 0, rates(
        warm_then(made, warm, LinearLR(made, 1.0, 0.25, total_iters=11)), made)
    made = sgd()
    yield "TUTTI_COSINE", 0, rates(
        warm_then(made, warm, LambdaLR(made, cosine_factor)), made)
    made = sgd()
    wsd = lambda step: 1 if step < 5 else 1 - 0.75 * min(1, (step - 5) / 6)
    yield "TUTTI_WSD", 6, rates(warm_then(made, warm, LambdaLR(made, wsd)), made)


def warm_then(optimizer, warm, after):
    return SequentialLR(optimizer, [warm(optimizer), after], [5])


COSINE = []


def cosine_factor(step):
    """PyTorch's own cosine, held at its end: CosineAnnealingLR turns up again there."""
    if not COSINE:
        made = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        scheduler = CosineAnnealingLR(made, T_max=11, eta_min=0.25)
        for _ in range(12):
            COSINE.append(made.param_groups[0]["lr"])
            made.step()
            scheduler.step()
    return COSINE[min(step, 11)]


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference_numbers.h")
    lines = ["/* What PyTorch computes. Written by tests/ddp/make_reference.py; do not edit. */",
             "#ifndef TTI_TESTS_DDP_REFERENCE_NUMBERS_H", "#define TTI_TESTS_DDP_REFERENCE_NUMBERS_H", "",
             '#include "tutti/ddp.h"', "", "/* clang-format off */",
             f"enum {{ REFERENCE_COUNT = {COUNT}, REFERENCE_STEPS = {STEPS} }};",
             "static const struct {", "    enum tutti_optimizer_kind kind;",
             "    float lr, weight_decay, momentum, dampening;", "    bool nesterov;",
             "    float beta1, beta2, param[REFERENCE_COUNT];", "} reference_optimizers[] = {"]
    lines += ["    " + row for row in optimizers()] + ["};", ""]
    lines += ["static const struct {", "    size_t samples;",
              "    int ranks, seed, epoch, drop_last, in_order, share;",
              "    int indices[16]; /* of rank 0, then rank 1, ... */", "} reference_samplers[] = {"]
    lines += ["    " + row for row in samplers()] + ["};"]
    lines += [f"static const int reference_long_order[] = {long_order()};", ""]
    lines += ["static const struct {", "    enum tutti_schedule_kind kind;", "    int decay;",
              "    double rates[20];", "} reference_schedules[] = {"]
    lines += [f"    {{{kind}, {decay}, {row}}}," for kind, decay, row in schedules()] + ["};"]
    lines += ["/* clang-format on */", "", "#endif", ""]
    with open(path, "w", encoding="ascii") as out:
        out.write("\n".join(lines))


main()
