/* Memory and events between processes: handles through a pipe, words and streams that wait for the
 * other process, an all-reduce whose ranks are processes, and what happens to handles of the dead.
 */
#include "base/clock.h"
#include "tests/device/descriptors.h"
#include "tests/device/gpu_under_test.h"
#include "tests/tutti_cmocka.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 500, RANKS = 3, SLOT_BYTES = 4096, ROUNDS = 4 };

/* What a rank tells the others: handles of its memory, and the event. */
struct card {
    struct tti_gpu_handle control, slots, out, event;
};

struct rank {
    struct tti_gpu *gpu;
    struct tti_gpu_control *control;
    void *slots;
    float *out;
    struct tti_gpu_event *event;
    struct tti_gpu_status *status;
    struct card card;
};

static void rank_begin(struct rank *r, int rank)
{
    int devices = 0, fd = -1;
    GPU_OK(gpu_ops()->count(&devices));
    r->gpu = gpu_open(rank % devices);
    const struct tti_gpu_ops *ops = r->gpu->ops;
    r->control = gpu_memory(r->gpu, sizeof *r->control, NULL);
    r->slots = gpu_memory(r->gpu, TTI_LL_SLOTS_BYTES(RANKS, SLOT_BYTES), NULL);
    r->out = gpu_memory(r->gpu, 4 * COUNT, NULL);
    GPU_OK(ops->event_create(r->gpu, TTI_EVENT_INTERPROCESS, &r->event));
    GPU_OK(ops->alloc(r->gpu, TTI_MEMORY_PINNED, sizeof *r->status, (void **)&r->status));
    memset(r->status, 0, sizeof *r->status);
    GPU_OK(ops->memory_export(r->gpu, r->control, &r->card.control, &fd));
    GPU_OK(ops->memory_export(r->gpu, r->slots, &r->card.slots, &fd));
    GPU_OK(ops->memory_export(r->gpu, r->out, &r->card.out, &fd));
    GPU_OK(ops->event_export(r->event, &r->card.event));
}

static void rank_end(struct rank *r)
{
    const struct tti_gpu_ops *ops = r->gpu->ops;
    ops->event_destroy(r->event);
    ops->free(r->gpu, r->control);
    ops->free(r->gpu, r->slots);
    ops->free(r->gpu, r->out);
    ops->free(r->gpu, r->status);
    ops->close(r->gpu);
}

/* All ranks' cards to all, through the parent, which also makes it a barrier. */
struct wires {
    int up, down;
};

/* A rank's view of all: arguments with everybody's memory, and the others' events. */
struct circle {
    struct tti_coupled_args args;
    struct tti_gpu_event *events[RANKS];
};

/* What one peer showed in its card. */
static void circle_import(const struct rank *me, const struct card *card, int peer,
                          struct circle *circle)
{
    const struct tti_gpu_ops *ops = me->gpu->ops;
    struct tti_coupled_args *args = &circle->args;
    void *mapped = NULL, *again = NULL;
    GPU_OK(ops->memory_import(me->gpu, &card->control, -1, (void **)&args->control[peer]));
    GPU_OK(ops->memory_import(me->gpu, &card->slots, -1, &args->slots[peer]));
    GPU_OK(ops->memory_import(me->gpu, &card->out, -1, &mapped));
    GPU_OK(ops->memory_import(me->gpu, &card->out, -1, &again)); /* counts */
    assert_ptr_equal(mapped, again);
    ops->memory_release(me->gpu, again);
    struct tti_gpu_pointer info;
    GPU_OK(ops->pointer((char *)mapped + 4 * COUNT - 1, &info));
    assert_int_equal(info.kind, TTI_MEMORY_DEVICE);
    args->in[peer] = args->out[peer] = mapped;
    GPU_OK(ops->event_import(me->gpu, &card->event, &circle->events[peer]));
}

static void circle_begin(const struct rank *me, int rank, const struct card *cards,
                         struct circle *circle)
{
    *circle = (struct circle){.args = {.rank = (uint32_t)rank,
                                       .ranks = RANKS,
                                       .op = TUTTI_SUM,
                                       .count = COUNT,
                                       .slot_bytes = SLOT_BYTES,
                                       .status = me->status,
                                       .timeout_ns = UINT64_C(30000000000)}};
    for (int p = 0; p < RANKS; p++)
        if (p != rank)
            circle_import(me, &cards[p], p, circle);
    void *own = NULL;
    circle->args.control[rank] = me->control;
    circle->args.slots[rank] = me->slots;
    circle->args.in[rank] = circle->args.out[rank] = me->out;
    /* The driver has a word of its own for it. */
    assert_true(me->gpu->ops->memory_import(me->gpu, &cards[rank].out, -1, &own) != TUTTI_OK);
}

static void circle_end(const struct rank *me, int rank, const struct circle *circle)
{
    const struct tti_gpu_ops *ops = me->gpu->ops;
    for (int p = 0; p < RANKS; p++) {
        if (p == rank)
            continue;
        ops->memory_release(me->gpu, circle->args.control[p]);
        ops->memory_release(me->gpu, circle->args.slots[p]);
        ops->memory_release(me->gpu, circle->args.out[p]);
        ops->event_destroy(circle->events[p]);
    }
}

static void sum_rounds(const struct rank *me, const struct tti_coupled_args *args)
{
    const struct tti_gpu_ops *ops = me->gpu->ops;
    float values[COUNT];
    GPU_OK(ops->prepare(me->gpu, TTI_KERNEL_TWO_SHOT, TUTTI_FLOAT32));
    GPU_OK(ops->prepare(me->gpu, TTI_KERNEL_ONE_SHOT_LL, TUTTI_FLOAT32));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++)
            values[i] = (float)((int)args->rank + i + round);
        const struct tti_gpu_launch launch = {.kernel = round % 2 ? TTI_KERNEL_ONE_SHOT_LL
                                                                  : TTI_KERNEL_TWO_SHOT,
                                              .type = TUTTI_FLOAT32,
                                              .blocks = 2,
                                              .threads = 64,
                                              .args = args,
                                              .args_bytes = sizeof *args};
        gpu_write(me->gpu, me->out, values, sizeof values);
        GPU_OK(ops->launch(me->gpu, &launch, NULL));
        gpu_read(me->gpu, values, me->out, sizeof values);
        for (int i = 0; i < COUNT; i++)
            assert_true(values[i] == (float)(RANKS * (RANKS - 1) / 2 + RANKS * (i + round)));
    }
    assert_int_equal(me->status->failed, 0);
}

/* Rank 1 writes into rank 0's memory and records; rank 0 holds for it, then reads. Rank 0's message
 * that it is ready, and rank 1's that it has recorded, go through the parent. */
static void event_order(const struct rank *me, const struct circle *circle, struct wires wires)
{
    const struct tti_gpu_ops *ops = me->gpu->ops;
    char go = 0;
    if (circle->args.rank == 1) {
        get(wires.down, &go, 1);
        GPU_OK(ops->fill(me->gpu, circle->args.out[0], 0x11, 4 * COUNT, NULL));
        GPU_OK(ops->event_record(me->event, NULL));
        put(wires.up, &go, 1);
    } else if (circle->args.rank == 0) {
        uint32_t words[COUNT];
        put(wires.up, &go, 1);
        get(wires.down, &go, 1);
        GPU_OK(ops->event_hold(circle->events[1], NULL));
        gpu_read(me->gpu, words, me->out, sizeof words);
        assert_int_equal(words[COUNT - 1], 0x11111111);
        put(wires.up, &go, 1);
    }
    get(wires.down, &go, 1);
    gpu_settle(me->gpu, NULL);
}

static void rank_run(int rank, struct wires wires)
{
    static struct rank me;
    struct circle circle;
    struct card cards[RANKS];
    rank_begin(&me, rank);
    put(wires.up, &me.card, sizeof me.card);
    get(wires.down, cards, sizeof cards);
    circle_begin(&me, rank, cards, &circle);
    sum_rounds(&me, &circle.args);
    event_order(&me, &circle, wires);
    circle_end(&me, rank, &circle);
    /* Freed when all have let go of it, as CUDA wants. */
    char go = 1;
    put(wires.up, &go, 1);
    get(wires.down, &go, 1);
    rank_end(&me);
}

struct child {
    pid_t pid;
    int from, to;
};

static int child_rank;
static struct wires child_wires;
static void child_test(void **state)
{
    (void)state;
    rank_run(child_rank, child_wires);
}

/* A failed assertion in a child is its exit status: cmocka cannot jump between processes. */
static struct child start(int rank)
{
    int up[2], down[2];
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        close(up[0]);
        close(down[1]);
        alarm(200);
        child_rank = rank;
        child_wires = (struct wires){.up = up[1], .down = down[0]};
        const struct CMUnitTest tests[] = {cmocka_unit_test(child_test)};
        _exit(cmocka_run_group_tests(tests, NULL, NULL));
    }
    close(up[1]);
    close(down[0]);
    return (struct child){.pid = pid, .from = up[0], .to = down[1]};
}

static void finish(struct child *child)
{
    int status = -1;
    close(child->from);
    close(child->to);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The parent uses no device, so that its children may. */
static void test_ranks_as_processes(void **state)
{
    (void)state;
    struct child children[RANKS];
    struct card cards[RANKS];
    char go = 1;
    for (int r = 0; r < RANKS; r++)
        children[r] = start(r);
    for (int r = 0; r < RANKS; r++)
        get(children[r].from, &cards[r], sizeof cards[r]);
    for (int r = 0; r < RANKS; r++)
        put(children[r].to, cards, sizeof cards);
    get(children[0].from, &go, 1);
    put(children[1].to, &go, 1);
    get(children[1].from, &go, 1);
    put(children[0].to, &go, 1);
    get(children[0].from, &go, 1);
    for (int r = 0; r < RANKS; r++)
        put(children[r].to, &go, 1);
    for (int r = 0; r < RANKS; r++)
        get(children[r].from, &go, 1);
    for (int r = 0; r < RANKS; r++)
        put(children[r].to, &go, 1);
    for (int r = 0; r < RANKS; r++)
        finish(&children[r]);
}

/* A handle of memory that its owner took with it is refused. */
static struct tti_gpu_handle stale;
static int stale_pipe[2];
static void make_stale(void **state)
{
    (void)state;
    struct tti_gpu *gpu = gpu_open(0);
    void *memory = gpu_memory(gpu, 4096, NULL);
    int fd = -1;
    GPU_OK(gpu->ops->memory_export(gpu, memory, &stale, &fd));
    put(stale_pipe[1], &stale, sizeof stale);
    gpu->ops->free(gpu, memory);
    gpu->ops->close(gpu);
}

static void test_stale_handle(void **state)
{
    (void)state;
    assert_int_equal(pipe(stale_pipe), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(make_stale)};
        _exit(cmocka_run_group_tests(tests, NULL, NULL));
    }
    int status = -1;
    get(stale_pipe[0], &stale, sizeof stale);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(stale_pipe[0]);
    close(stale_pipe[1]);
    struct tti_gpu *gpu = gpu_open(0);
    void *mapped = NULL;
    assert_true(gpu->ops->memory_import(gpu, &stale, -1, &mapped) != TUTTI_OK);
    assert_null(mapped);
    memset(&stale, 0x5a, sizeof stale);
    assert_true(gpu->ops->memory_import(gpu, &stale, -1, &mapped) != TUTTI_OK);
    gpu->ops->close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_as_processes), /* first: the parent has opened nothing yet */
        cmocka_unit_test(test_stale_handle),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
