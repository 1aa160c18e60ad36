/* The steps of random programs. */
#include "tests/integration/device_calls.h"
#include "tests/random/actor.h"
#include "tests/random/death.h"
#include "tests/random/programs.h"
#include "tests/rank_check.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CALLS = 6 };

void actor_tell(const struct actor *a, const char *format, ...)
{
    char text[400];
    va_list arguments;
    if (!a->told)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "step %d rank %d: %s\n", a->step, a->rank, text);
}

void actor_dawdle(struct actor *a)
{
    if (draw_once_in(&a->own, 8))
        usleep((useconds_t)draw_below(&a->own, 3000));
}

int family_draw(struct actor *a)
{
    const int first = draw_int(&a->all, RANDOM_FAMILIES);
    for (int k = 0; k < RANDOM_FAMILIES; k++)
        if (a->families[(first + k) % RANDOM_FAMILIES].live)
            return (first + k) % RANDOM_FAMILIES;
    return 0;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static int groups_end(struct actor *a, struct groups *g)
{
    actor_tell(a, "group end");
    CHECK_OK(tutti_group_end());
    groups_ended(g);
    return 0;
}

/* Begin or end groups around the next call, as this rank likes. */
static int groups_vary(struct actor *a, struct groups *g, const struct call *next)
{
    while (groups_ends(g, &a->own, next->family, next->uneven))
        if (groups_end(a, g))
            return 1;
    while (groups_begins(g, &a->own)) {
        actor_tell(a, "group start");
        CHECK_OK(tutti_group_start());
        groups_begun(g);
    }
    groups_call(g, next->family, next->uneven);
    return 0;
}

static int some_finish(struct actor *a, int busiest)
{
    int used = 0;
    for (int k = 0; k < RANDOM_ACTIVE; k++)
        used += a->active[k].used;
    const int first = draw_int(&a->own, RANDOM_ACTIVE);
    for (int k = 0; k < RANDOM_ACTIVE; k++) {
        struct active *x = &a->active[(first + k) % RANDOM_ACTIVE];
        if (!x->used || (used <= busiest && !draw_once_in(&a->own, 2)))
            continue;
        if (call_finish(a, x))
            return 1;
        used--;
    }
    return 0;
}

static int step_calls(struct actor *a)
{
    struct call calls[CALLS];
    const int many = 1 + draw_int(&a->all, CALLS);
    const int keeps_to = draw_once_in(&a->all, 2) ? family_draw(a) : -1;
    struct groups open = {.comm = -1};
    for (int k = 0; k < many; k++)
        calls[k] = call_draw(a, keeps_to >= 0 ? keeps_to : family_draw(a));
    if (some_finish(a, RANDOM_ACTIVE - CALLS))
        return 1;
    const bool groups = !draw_once_in(&a->own, 3);
    for (int k = 0; k < many; k++) {
        struct active *x = NULL;
        if (a->families[calls[k].family].own < 0)
            continue;
        if (groups && groups_vary(a, &open, &calls[k]))
            return 1;
        if (call_prepare(a, &calls[k], &x) || call_start(a, x, draw_once_in(&a->own, 2)))
            return 1;
        if (open.depth == 0)
            actor_dawdle(a);
    }
    while (open.depth > 0)
        if (groups_end(a, &open))
            return 1;
    return 0;
}

/* ---- threads -------------------------------------------------------------------------------- */

/* Calls of one communicator, by a thread of its own. */
struct line {
    struct actor *actor;
    struct active *calls[CALLS];
    int many, bad;
    char why[600];
};

static void *line_run(void *argument)
{
    struct line *l = argument;
    for (int k = 0; k < l->many && !l->bad; k++)
        l->bad = call_start(l->actor, l->calls[k], false);
    if (l->bad)
        snprintf(l->why, sizeof l->why, "%s", tutti_last_error());
    return NULL;
}

/* Several communicators at once, each by its own thread. What an actor draws while they run is for
 * messages and NULL buffers; it must not be shared, so each line has a copy. */
static int step_threads(struct actor *a)
{
    enum { LINES = 3 };
    struct line lines[LINES];
    struct actor *copies[LINES] = {NULL};
    pthread_t threads[LINES];
    bool taken[RANDOM_FAMILIES] = {false};
    const bool devices = a->devices;
    int running = 0, bad = 0;
    if (some_finish(a, 0))
        return 1;
    a->devices = false;
    for (int l = 0; l < LINES; l++) {
        const int family = family_draw(a), many = 1 + draw_int(&a->all, CALLS);
        struct line line = {.many = 0};
        for (int k = 0; k < many; k++) {
            const struct call call = call_draw(a, family);
            if (!taken[family] && a->families[family].own >= 0 &&
                call_prepare(a, &call, &line.calls[line.many++]))
                return 1;
        }
        taken[family] = true;
        if (line.many == 0)
            continue;
        copies[running] = malloc(sizeof *a);
        CHECK(copies[running]);
        memcpy(copies[running], a, sizeof *a);
        copies[running]->own = draw_from(draw_next(&a->own), 0);
        line.actor = copies[running];
        lines[running++] = line;
    }
    a->devices = devices;
    for (int l = 0; l < running; l++)
        CHECK(pthread_create(&threads[l], NULL, line_run, &lines[l]) == 0);
    for (int l = 0; l < running; l++) {
        CHECK(pthread_join(threads[l], NULL) == 0);
        if (lines[l].bad)
            memcpy(a->why, lines[l].why, sizeof a->why);
        bad |= lines[l].bad;
        free(copies[l]);
    }
    return bad || call_finish_all(a, -1);
}

/* ---- communicators come and go -------------------------------------------------------------- */

static int slots_free(const struct actor *a)
{
    int slots = 0;
    for (int k = 0; k < RANDOM_FAMILIES; k++)
        slots += !a->families[k].live;
    return slots;
}

/* A free place for a family; there is one. */
static struct family *slot_take(struct actor *a)
{
    for (int k = 0; k < RANDOM_FAMILIES; k++)
        if (!a->families[k].live) {
            a->families[k] = (struct family){.live = true, .own = -1};
            return &a->families[k];
        }
    return NULL;
}

static int family_check(const struct family *f, tutti_comm *comm)
{
    CHECK(comm && tutti_comm_size(comm) == f->size && tutti_comm_rank(comm) == f->own);
    return 0;
}

static int step_split(struct actor *a)
{
    const int parent = family_draw(a);
    const struct family was = a->families[parent];
    int colors[RANDOM_RANKS] = {0}, keys[RANDOM_RANKS] = {0}, most = 1 + draw_int(&a->all, 3);
    if (most > slots_free(a))
        most = slots_free(a);
    for (int r = 0; r < was.size; r++) {
        colors[r] = draw_int(&a->all, most + 1) - 1; /* -1: none */
        keys[r] = draw_int(&a->all, 3) - 1;
    }
    tutti_comm *comm = NULL;
    if (was.own >= 0)
        CHECK_OK(tutti_comm_split(was.comm, colors[was.own], keys[was.own], &comm));
    for (int color = 0; color < most; color++) {
        struct family made = {.live = true, .own = -1};
        for (int key = -1; key <= 1; key++)
            for (int r = 0; r < was.size; r++)
                if (colors[r] == color && keys[r] == key) {
                    made.own = r == was.own ? made.size : made.own;
                    made.members[made.size++] = was.members[r];
                }
        if (made.size == 0)
            continue;
        if (made.own >= 0) {
            if (family_check(&made, comm))
                return 1;
            made.comm = comm;
        }
        *slot_take(a) = made;
    }
    if (was.own >= 0)
        CHECK((comm != NULL) == (colors[was.own] >= 0));
    return 0;
}

/* Of some ranks of the first communicator, in any order, by an id that one of them makes. */
static int step_create(struct actor *a)
{
    struct family made = {.live = true, .own = -1};
    const struct family *first = &a->families[0];
    struct tutti_id id;
    memset(&id, 0, sizeof id);
    for (int r = 0; r < a->size; r++) {
        if (draw_once_in(&a->all, 3))
            continue;
        const int at = draw_int(&a->all, made.size + 1);
        memmove(&made.members[at + 1], &made.members[at],
                (size_t)(made.size - at) * sizeof made.members[0]);
        made.members[at] = r;
        made.size++;
    }
    if (made.size == 0 || slots_free(a) == 0)
        return 0;
    const int maker = made.members[draw_int(&a->all, made.size)];
    for (int k = 0; k < made.size; k++)
        made.own = made.members[k] == a->rank ? k : made.own;
    if (maker == a->rank)
        CHECK_OK(tutti_id_create("127.0.0.1", &id));
    CHECK_OK(tutti_broadcast(&id, &id, sizeof id, TUTTI_UINT8, maker, first->comm));
    if (made.own >= 0) {
        const struct tutti_options options = {sizeof options, 60, 60, 0, 0, 0, 0, 0};
        CHECK_OK(tutti_comm_create(&id, made.own, made.size, &options, &made.comm));
    }
    *slot_take(a) = made;
    return 0;
}

static int step_shrink(struct actor *a)
{
    const int parent = family_draw(a);
    const struct family *was = &a->families[parent];
    struct family made = {.live = true, .own = -1};
    int excluded[RANDOM_RANKS], out = 0;
    bool hears = a->victim < 0; /* of that death, and so does not wait for who has ended by it */
    for (int r = 0; r < was->size; r++) {
        if (draw_once_in(&a->all, 3)) {
            excluded[out++] = r;
            continue;
        }
        made.own = r == was->own ? made.size : made.own;
        made.members[made.size++] = was->members[r];
        hears |= was->members[r] == a->victim;
    }
    if (made.size == 0 || out == 0 || !hears || slots_free(a) == 0)
        return 0;
    if (made.own >= 0) {
        CHECK_OK(tutti_comm_shrink(was->comm, excluded, out, &made.comm));
        if (family_check(&made, made.comm))
            return 1;
    }
    *slot_take(a) = made;
    return 0;
}

static int family_end(struct actor *a, int family)
{
    struct family *f = &a->families[family];
    if (call_finish_all(a, family) || windows_end(a, family))
        return 1;
    if (f->premul && f->own >= 0 && draw_once_in(&a->own, 2))
        CHECK_OK(tutti_op_destroy(f->comm, f->op));
    tutti_comm_destroy(f->comm);
    f->comm = NULL;
    f->live = false;
    return 0;
}

static int step_destroy(struct actor *a)
{
    const int family = family_draw(a);
    return family == 0 ? 0 : family_end(a, family);
}

/* One rank aborts while the others are in an operation that cannot end without it. */
static int step_abort(struct actor *a)
{
    const int family = family_draw(a);
    struct family *f = &a->families[family];
    const int culprit = draw_int(&a->all, f->size);
    const size_t count = 1 + draw_below(&a->all, 50000);
    if (family == 0 || f->size < 2)
        return 0;
    if (f->own >= 0 && call_finish_all(a, family))
        return 1;
    CHECK(tti_ranks_together()); /* an abort finds nobody in what was before */
    if (f->own >= 0 && f->own != culprit) {
        struct buffer b;
        tutti_request *request = NULL;
        if (buffer_take(a, count * sizeof(float), false, &b))
            return 1;
        memset(b.data, 0, count * sizeof(float));
        enum tutti_result result = tutti_all_reduce_async(b.data, b.data, count, TUTTI_FLOAT32,
                                                          TUTTI_SUM, f->comm, NULL, &request);
        result = result == TUTTI_OK ? tutti_wait(request) : result;
        CHECK(result == TUTTI_ERR_ABORTED);
        CHECK(strstr(tutti_last_error(), "as drawn"));
        if (buffer_release(a, &b))
            return 1;
    } else if (f->own >= 0) {
        actor_dawdle(a);
        tutti_comm_abort(f->comm, "as drawn");
        CHECK(tutti_comm_error(f->comm) == TUTTI_ERR_ABORTED);
    }
    return family_end(a, family);
}

/* ---- the rest ------------------------------------------------------------------------------- */

static int step_operator(struct actor *a)
{
    struct family *f = &a->families[family_draw(a)];
    const enum tutti_type types[] = {TUTTI_INT32, TUTTI_FLOAT32, TUTTI_BFLOAT16, TUTTI_FLOAT64};
    f->premul_type = f->premul ? f->premul_type : types[draw_int(&a->all, 4)];
    if (f->premul && f->own >= 0 && call_finish_all(a, (int)(f - a->families)) != 0)
        return 1;
    if (f->premul && f->own >= 0)
        CHECK_OK(tutti_op_destroy(f->comm, f->op));
    f->premul = !f->premul;
    for (int r = 0; r < f->size && f->premul; r++)
        f->scalars[r] = 1 + draw_int(&a->all, 3);
    if (f->premul && f->own >= 0) {
        const double own = f->scalars[f->own];
        char scalar[8];
        values_put(scalar, f->premul_type, &own, 1);
        CHECK_OK(tutti_premul_sum_create(f->comm, f->premul_type, scalar, &f->op));
    }
    return 0;
}

/* Questions, which change nothing. Each rank asks what it likes. */
static int step_ask(struct actor *a)
{
    const struct family *f = &a->families[family_draw(a)];
    if (f->own < 0)
        return 0;
    struct tutti_memory memory;
    struct tutti_choice choice;
    int dead[RANDOM_RANKS], found = 0;
    switch (draw_int(&a->own, 6)) {
    case 0:
        CHECK_OK(tutti_comm_memory(f->comm, &memory));
        return 0;
    case 1:
        CHECK_OK(tutti_comm_choice(f->comm, (enum tutti_collective)draw_int(&a->own, 8), 1000,
                                   TUTTI_FLOAT32, &choice));
        return 0;
    case 2:
        CHECK_OK(tutti_comm_background(f->comm, draw_once_in(&a->own, 2)));
        return 0;
    case 3:
        CHECK(tutti_comm_dump(f->comm, "/dev/null") ==
              (a->unrecorded ? TUTTI_ERR_USAGE : TUTTI_OK));
        return 0;
    case 4:
        CHECK_OK(tutti_comm_dead(f->comm, dead, RANDOM_RANKS, &found));
        CHECK(found == 0 || a->victim >= 0);
        return 0;
    default:
        CHECK_OK(tutti_comm_error(f->comm));
        return 0;
    }
}

static int step_take(struct actor *a)
{
    static const struct {
        const char *name;
        int (*take)(struct actor *);
    } steps[] = {
        {"split", step_split},
        {"create", step_create},
        {"shrink", step_shrink},
        {"destroy", step_destroy},
        {"destroy", step_destroy},
        {"abort", step_abort},
        {"window", step_window_create},
        {"puts", step_puts},
        {"puts", step_puts},
        {"window's end", step_window_destroy},
        {"threads", step_threads},
        {"operator", step_operator},
        {"calls", step_calls},
    };
    enum { STEPS = sizeof steps / sizeof *steps };
    int which = draw_once_in(&a->all, 2) ? STEPS - 1 : draw_int(&a->all, STEPS - 1);
    /* Strangers, who have but a meeting place in common, learn by the deadline alone that one of
     * them does not come; and the abort is one that all ranks come to. */
    if (a->victim >= 0 && (steps[which].take == step_create || steps[which].take == step_abort))
        which = STEPS - 1;
    if (a->rank == a->victim && a->step == a->dies_at)
        death_soon((useconds_t)draw_below(&a->own, DEATH_MOMENT_US));
    actor_tell(a, "%s", steps[which].name);
    if (steps[which].take(a) || (draw_once_in(&a->all, 4) && step_ask(a)))
        return 1;
    actor_dawdle(a);
    return draw_once_in(&a->own, 2) ? some_finish(a, RANDOM_ACTIVE) : 0;
}

int actor_run(struct actor *a, int steps)
{
    for (a->step = 0; a->step < steps; a->step++)
        if (step_take(a)) {
            fprintf(stderr, "seed %llu step %d rank %d: failed\n", (unsigned long long)a->seed,
                    a->step, a->rank);
            return 1;
        }
    if (call_finish_all(a, -1) || windows_end(a, -1))
        return 1;
    for (int k = 1; k < RANDOM_FAMILIES; k++)
        if (a->families[k].live && family_end(a, k))
            return 1;
    buffer_end(a);
    return 0;
}
