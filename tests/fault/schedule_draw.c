/* Drawing schedules, and what their operations must give (schedule.h). */
#include "tests/fault/schedule.h"

#include <stdio.h>
#include <string.h>

static uint64_t draw(uint64_t *state, uint64_t below)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static const char *const trouble_names[TROUBLE_KINDS] = {"nothing",  "kill",  "stall",   "drop",
                                                         "truncate", "forge", "corrupt", "lose"};

/* Late and out of order, nearly always; then the trouble. */
static void schedule_faults(struct schedule *s, const char *over, uint64_t *state)
{
    static const char *const chances[] = {"0.3", "0.1", "0.02"};
    int used = snprintf(s->fault, sizeof s->fault, "over=%s,seed=%llu", over,
                        (unsigned long long)draw(state, UINT64_MAX));
    char *at = s->fault + used;
    size_t room = sizeof s->fault - (size_t)used;
    const char *late = "";
    switch (draw(state, 4)) {
    case 0:
        late = ",delay=0.1:2";
        break;
    case 1:
        late = ",reorder=0.3:2";
        break;
    case 2:
        late = ",delay=0.05:1,reorder=0.2:3";
        break;
    default:
        break;
    }
    if (s->trouble == TROUBLE_NONE)
        snprintf(at, room, "%s", late);
    else if (s->trouble == TROUBLE_KILL || s->trouble == TROUBLE_STALL)
        snprintf(at, room, "%s,rank=%d,%s=%llu", late, s->victim, trouble_names[s->trouble],
                 (unsigned long long)s->step);
    else
        snprintf(at, room, "%s,rank=%d,%s=%s", late, s->victim, trouble_names[s->trouble],
                 chances[draw(state, 3)]);
}

void schedule_draw(uint64_t seed, uint64_t index, const char *over, struct schedule *schedule)
{
    static const size_t counts[] = {1, 7, 64, 500, 3000, 20000, 100000};
    static const enum tutti_type types[] = {TUTTI_UINT8, TUTTI_INT32, TUTTI_INT64, TUTTI_FLOAT32};
    uint64_t state = seed * UINT64_C(0xd1342543de82ef95) + index;
    struct schedule s = {.seed = seed, .index = index};
    int algorithms = 0;
    s.ranks = 2 + (int)draw(&state, SCHEDULE_RANKS - 1);
    s.lanes = 1 + (int)draw(&state, 3);
    s.operations = 1 + (int)draw(&state, SCHEDULE_OPERATIONS);
    s.collective = (enum tutti_collective)draw(&state, TUTTI_COLLECTIVE_COUNT);
    while (tutti_algorithm_name(s.collective, algorithms))
        algorithms++;
    s.algorithm = tutti_algorithm_name(s.collective, (int)draw(&state, (uint64_t)algorithms + 1));
    s.count = counts[draw(&state, sizeof counts / sizeof *counts)];
    s.type = types[draw(&state, sizeof types / sizeof *types)];
    s.root = (int)draw(&state, (uint64_t)s.ranks);
    s.fast = draw(&state, 2);
    s.fused = draw(&state, 2);
    s.library_memory = draw(&state, 2);
    s.shrinks = draw(&state, 4) == 0;
    s.trouble = (enum schedule_trouble)draw(&state, TROUBLE_KINDS);
    /* Threads trust each other with addresses; the fused path sends some. */
    s.fused = s.fused && s.trouble != TROUBLE_CORRUPT;
    s.victim = (int)draw(&state, (uint64_t)s.ranks);
    s.step = 1 + draw(&state, 12);
    /* Where nothing may fail there is time enough for any machine. */
    bool waits = s.trouble == TROUBLE_STALL || s.trouble == TROUBLE_DROP ||
                 s.trouble == TROUBLE_TRUNCATE || s.trouble == TROUBLE_FORGE;
    s.timeout_s = waits ? 0.4 : SCHEDULE_PATIENCE;
    schedule_faults(&s, over, &state);
    *schedule = s;
}

void schedule_death(const char *over, int ranks, const char *algorithm, bool fast, int victim,
                    uint64_t step, struct schedule *schedule)
{
    *schedule = (struct schedule){
        .ranks = ranks,
        .lanes = 1,
        .operations = 2,
        .collective = TUTTI_ALL_REDUCE,
        .algorithm = algorithm,
        .count = 24,
        .type = TUTTI_INT32,
        .fast = fast,
        .trouble = TROUBLE_KILL,
        .victim = victim,
        .step = step,
        .timeout_s = SCHEDULE_PATIENCE,
        .shrinks = true,
    };
    snprintf(schedule->fault, sizeof schedule->fault, "over=%s,seed=1,rank=%d,kill=%llu", over,
             victim, (unsigned long long)step);
}

const char *schedule_text(const struct schedule *s, char *text, size_t room)
{
    snprintf(text, room, "%llu:%llu: %d x %s %s of %zu %s, %d ranks, %d lanes%s%s%s%s; %s",
             (unsigned long long)s->seed, (unsigned long long)s->index, s->operations,
             tutti_collective_name(s->collective), s->algorithm ? s->algorithm : "(chosen)",
             s->count, tutti_type_name(s->type), s->ranks, s->lanes, s->fast ? ", fast" : "",
             s->fused ? ", fused" : "", s->library_memory ? ", library memory" : "",
             s->shrinks ? ", shrinks" : "", s->fault);
    return text;
}

/* ---- what operations give ------------------------------------------------------------------- */

int schedule_input(int rank, int operation, size_t i)
{
    return (int)((i * 3 + i / 11 + (size_t)rank * 7 + (size_t)operation * 5) % 9);
}

size_t schedule_results(const struct schedule *s, int rank)
{
    size_t blocks = 1;
    if (s->collective == TUTTI_BARRIER)
        return 0;
    if ((s->collective == TUTTI_REDUCE || s->collective == TUTTI_GATHER) && rank != s->root)
        return 0;
    if (s->collective == TUTTI_ALL_GATHER || s->collective == TUTTI_ALL_TO_ALL ||
        s->collective == TUTTI_GATHER)
        blocks = (size_t)s->ranks;
    return blocks * s->count;
}

int schedule_expected(const struct schedule *s, int rank, int operation, size_t i)
{
    size_t block = i / s->count, offset = i % s->count, own = (size_t)rank * s->count;
    int sum = 0;
    switch (s->collective) {
    case TUTTI_BROADCAST:
        return schedule_input(s->root, operation, i);
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        return schedule_input((int)block, operation, offset);
    case TUTTI_ALL_TO_ALL:
        return schedule_input((int)block, operation, own + offset);
    case TUTTI_SCATTER:
        return schedule_input(s->root, operation, own + i);
    case TUTTI_SEND_RECV:
        return schedule_input((rank + s->ranks - 1) % s->ranks, operation, i);
    case TUTTI_REDUCE_SCATTER:
        for (int k = 0; k < s->ranks; k++)
            sum += schedule_input(k, operation, own + i);
        return sum;
    default: /* all_reduce, reduce */
        for (int k = 0; k < s->ranks; k++)
            sum += schedule_input(k, operation, i);
        return sum;
    }
}
