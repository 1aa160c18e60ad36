/* Device memory that goes to other processes by descriptor, over local sockets: found by asking,
 * taken in once however often it is mapped, refused by name where it cannot go; knocks of strangers
 * at a rank's door; and nothing left open. On the simulated device and on the fake driver. */
#include "base/clock.h"
#include "device/cuda/cuda_driver.h"
#include "device/reclaim.h"
#include "tests/device/descriptors.h"
#include "tests/device/gpu_under_test.h"
#include "tests/tutti_cmocka.h"
#include "transport/cuda_ipc/arena.h"
#include "transport/cuda_ipc/passing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, BYTES = 100000, SECONDS = 100 };

struct card {
    struct tti_passing_door door;
    struct tti_arena_offer offer;
};

/* ---- a rank ---- */

struct rank {
    struct tti_gpu *gpu;
    struct tti_arena_map own, peers[RANKS];
    int fd, listener, taken[RANKS];
    struct card card;
};

static void rank_begin(struct rank *me, int rank)
{
    int devices = 0;
    GPU_OK(gpu_ops()->count(&devices));
    me->gpu = gpu_open(rank % devices);
    GPU_OK(tti_arena_create(me->gpu, BYTES, true, tti_deadline_in(SECONDS), &me->own));
    GPU_OK(tti_arena_describe(me->gpu, &me->own, BYTES, &me->card.offer, &me->fd));
    assert_true(me->fd >= 0 && me->card.offer.by_descriptor);
    GPU_OK(tti_passing_open(&me->card.door, &me->listener));
}

static void rank_exchange(struct rank *me, int rank, const struct card *cards)
{
    struct tti_passing_door doors[RANKS];
    int give[RANKS];
    for (int r = 0; r < RANKS; r++) {
        doors[r] = cards[r].door;
        give[r] = r == rank ? -1 : me->fd;
        me->taken[r] = r == rank ? -2 : -1;
    }
    const struct tti_passing passing = {.self = rank,
                                        .count = RANKS,
                                        .listener = me->listener,
                                        .doors = doors,
                                        .give = give,
                                        .take = me->taken};
    GPU_OK(tti_passing_exchange(&passing, tti_deadline_in(SECONDS)));
}

static void rank_map(struct rank *me, int rank, const struct card *cards)
{
    for (int r = 0; r < RANKS; r++) {
        struct tti_arena_map again = {NULL, NULL};
        void *base = NULL;
        if (r == rank)
            continue;
        GPU_OK(tti_arena_map(me->gpu, &cards[r].offer, me->taken[r], &me->peers[r]));
        GPU_OK(tti_arena_map(me->gpu, &cards[r].offer, me->taken[r], &again));
        assert_ptr_equal(again.base, me->peers[r].base);
        tti_arena_unmap(me->gpu, &again);
        /* Not under the name of one's own, nor with a descriptor of something else. */
        GPU_FAILS(TUTTI_ERR_ARGUMENT, me->gpu->ops->memory_import(me->gpu, &me->card.offer.handle,
                                                                  me->taken[r], &base));
        assert_true(me->gpu->ops->memory_import(me->gpu, &cards[r].offer.handle, STDERR_FILENO,
                                                &base) == TUTTI_OK
                        ? base == me->peers[r].base /* it was known already: counts */
                        : base == NULL);
        if (base)
            me->gpu->ops->memory_release(me->gpu, base);
        struct tti_gpu_pointer info;
        GPU_OK(me->gpu->ops->pointer(me->peers[r].base + BYTES - 1, &info));
        assert_int_equal(info.kind, TTI_MEMORY_DEVICE);
    }
    for (int r = 0; r < RANKS; r++)
        if (r != rank)
            close(me->taken[r]);
    close(me->fd);
    close(me->listener);
}

/* Everybody writes to everybody, each to a word of its own. */
static void rank_write(struct rank *me, int rank)
{
    uint32_t word = (uint32_t)rank + 100;
    for (int r = 0; r < RANKS; r++)
        gpu_write(me->gpu, (r == rank ? me->own.base : me->peers[r].base) + 4 * rank, &word, 4);
}

static void rank_read(struct rank *me)
{
    uint32_t words[RANKS];
    gpu_read(me->gpu, words, me->own.base, sizeof words);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(words[r], r + 100);
}

static int child_rank, child_up, child_down;
static void child_test(void **state)
{
    (void)state;
    static struct rank me;
    struct card cards[RANKS];
    char go = 1;
    const int before = open_descriptors();
    rank_begin(&me, child_rank);
    put(child_up, &me.card, sizeof me.card);
    get(child_down, cards, sizeof cards);
    rank_exchange(&me, child_rank, cards);
    rank_map(&me, child_rank, cards);
    rank_write(&me, child_rank);
    put(child_up, &go, 1);
    get(child_down, &go, 1);
    rank_read(&me);
    for (int r = 0; r < RANKS; r++)
        if (r != child_rank)
            tti_arena_unmap(me.gpu, &me.peers[r]);
    tti_arena_unmap(me.gpu, &me.own);
    tti_gpu_reclaim(me.gpu->ops);
    me.gpu->ops->close(me.gpu);
    if (getenv("TUTTI_TEST_GPU") == NULL || getenv("TUTTI_LIBCUDA")) /* real drivers keep some */
        assert_int_equal(open_descriptors(), before);
}

/* ---- all of them ---- */

/* Says nothing, and something wrong. */
static void strangers(const struct card *card)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = strlen(card->door.name);
    memcpy(address.sun_path + 1, card->door.name, length);
    for (int talks = 0; talks < 2; talks++) {
        const int knock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(knock, (struct sockaddr *)&address,
                                 (socklen_t)(sizeof address.sun_family + 1 + length)),
                         0);
        if (talks)
            assert_int_equal(send(knock, card, sizeof *card, 0), (ssize_t)sizeof *card);
        close(knock);
    }
}

/* The parent opens no device. */
static void test_passed(void **state)
{
    int up[RANKS][2], down[RANKS][2];
    pid_t pids[RANKS];
    struct card cards[RANKS];
    char go = 1;
    (void)state;
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(pipe(up[r]) | pipe(down[r]), 0);
        pids[r] = fork();
        if (pids[r] == 0) {
            alarm(200);
            child_rank = r;
            child_up = up[r][1];
            child_down = down[r][0];
            const struct CMUnitTest tests[] = {cmocka_unit_test(child_test)};
            _exit(cmocka_run_group_tests(tests, NULL, NULL));
        }
    }
    for (int r = 0; r < RANKS; r++)
        get(up[r][0], &cards[r], sizeof cards[r]);
    strangers(&cards[0]);
    for (int r = 0; r < RANKS; r++)
        put(down[r][1], cards, sizeof cards);
    for (int r = 0; r < RANKS; r++)
        get(up[r][0], &go, 1);
    for (int r = 0; r < RANKS; r++)
        put(down[r][1], &go, 1);
    for (int r = 0; r < RANKS; r++) {
        int status = -1;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        for (int end = 0; end < 2; end++) {
            close(up[r][end]);
            close(down[r][end]);
        }
    }
}

/* A rank that does not come to the door is a failure at the deadline, and leaves nothing. */
static void test_nobody_comes(void **state)
{
    struct tti_passing_door doors[2];
    int listener = -1, other = -1, give[2] = {-1, -1}, take[2] = {-2, -1};
    (void)state;
    const int before = open_descriptors();
    GPU_OK(tti_passing_open(&doors[0], &listener));
    GPU_OK(tti_passing_open(&doors[1], &other));
    const struct tti_passing passing = {
        .count = 2, .listener = listener, .doors = doors, .give = give, .take = take};
    GPU_FAILS(TUTTI_ERR_PEER, tti_passing_exchange(&passing, tti_deadline_in(0.1)));
    assert_int_equal(take[1], -1);
    close(listener);
    close(other);
    give[1] = STDERR_FILENO;
    take[1] = -2; /* and its door is closed */
    assert_true(tti_passing_exchange(&passing, tti_deadline_in(0.1)) != TUTTI_OK);
    assert_int_equal(open_descriptors(), before);
}

/* What comes to lie where other memory was is not taken for that by who still has it mapped. */
static void test_another(void **state)
{
    struct tti_gpu_handle handles[2];
    (void)state;
    struct tti_gpu *gpu = gpu_first();
    for (int k = 0; k < 2; k++) {
        void *memory = NULL;
        int fd = -1;
        GPU_OK(gpu->ops->alloc_shared(gpu, BYTES, &memory));
        GPU_OK(gpu->ops->memory_export(gpu, memory, &handles[k], &fd));
        gpu->ops->free(gpu, memory);
        close(fd);
    }
    assert_memory_not_equal(&handles[0], &handles[1], sizeof handles[0]);
    gpu->ops->close(gpu);
}

/* Memory that its maker did not mean for other processes, or for fabric alone, is refused by name.
 */
static void test_refused(void **state)
{
    static const struct {
        int handles;
        const char *says;
    } kinds[] = {{0, "this process alone"}, {TTI_CU_HANDLE_FABRIC, "fabric handles alone"}};
    const struct tti_cuda_driver *cu = NULL;
    (void)state;
    if (gpu_ops() != tti_gpu_cuda())
        skip();
    struct tti_gpu *gpu = gpu_open(0);
    tti_cu_context context = NULL;
    GPU_OK(tti_cuda_driver_load(&cu));
    assert_int_equal(cu->primary_retain(&context, 0), TTI_CU_OK);
    assert_int_equal(cu->context_push(context), TTI_CU_OK);
    for (size_t k = 0; k < 2; k++) {
        const struct tti_cu_memory_prop prop = {.type = TTI_CU_MEMORY_PINNED,
                                                .handles = kinds[k].handles,
                                                .location = {TTI_CU_LOCATION_DEVICE, 0}};
        const struct tti_cu_access access = {{TTI_CU_LOCATION_DEVICE, 0}, TTI_CU_ACCESS_READ_WRITE};
        tti_cu_memory piece = 0;
        tti_cu_ptr base = 0;
        size_t page = 0;
        struct tti_gpu_handle handle;
        int fd = -1;
        if (cu->memory_page(&page, &prop, TTI_CU_PAGE_MINIMUM) != TTI_CU_OK ||
            cu->memory_create(&piece, page, &prop, 0) != TTI_CU_OK)
            continue; /* no fabric here */
        assert_int_equal(cu->address_reserve(&base, page, 0, 0, 0), TTI_CU_OK);
        assert_int_equal(cu->memory_map(base, page, 0, piece, 0), TTI_CU_OK);
        assert_int_equal(cu->memory_allow(base, page, &access, 1), TTI_CU_OK);
        GPU_FAILS(TUTTI_ERR_UNSUPPORTED,
                  gpu->ops->memory_export(gpu, (void *)(uintptr_t)base, &handle, &fd));
        assert_non_null(strstr(tti_error_text(), kinds[k].says));
        assert_int_equal(fd, -1);
        assert_int_equal(cu->memory_unmap(base, page), TTI_CU_OK);
        assert_int_equal(cu->address_free(base, page), TTI_CU_OK);
        assert_int_equal(cu->memory_release(piece), TTI_CU_OK);
    }
    tti_cu_context popped;
    (void)cu->context_pop(&popped);
    (void)cu->primary_release(0);
    gpu->ops->close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passed), /* first: the parent has opened nothing yet */
        cmocka_unit_test(test_nobody_comes),
        cmocka_unit_test(test_another),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
