/* device/gpu.h, one operation after the other: memory and what is known of it, streams, events,
 * words, graphs, and what threads of a block do. On the simulated device, or a GPU. */
#include "base/clock.h"
#include "device/memory.h"
#include "device/sim/sim_block.h"
#include "tests/device/gpu_under_test.h"
#include "tests/tutti_cmocka.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void test_properties(void **state)
{
    (void)state;
    const int devices = gpu_devices(4);
    for (int d = 0; d < devices; d++) {
        struct tti_gpu *gpu = gpu_open(d);
        const struct tti_gpu_properties *p = &gpu->properties;
        assert_int_equal(gpu->device, d);
        assert_true(p->name[0] && p->pci[0]);
        assert_in_range(p->sms, 1, 1000);
        assert_in_range(p->threads_per_sm, 1024, 4096);
        assert_true(p->memory_bytes > 1 << 20 && p->compute_major >= 5);
        gpu->ops->close(gpu);
    }
    struct tti_gpu *none = NULL;
    GPU_FAILS(TUTTI_ERR_ARGUMENT, gpu_ops()->open(4096, &none));
    assert_null(none);
}

/* What is known of the device that a process works on before it says so. */
static void test_here(void **state)
{
    (void)state;
    const int devices = gpu_devices(2);
    const bool cuda = strcmp(gpu_ops()->name, "cuda") == 0;
    char pci[TTI_GPU_PCI_BYTES];
    assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
    gpu_ops()->here(-1, pci);
    assert_string_equal(pci, cuda ? "" : "?"); /* CUDA: no context, so no device is used */
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "0", 1), 0);
    gpu_ops()->here(-1, pci);
    if (cuda)
        assert_int_equal(pci[0] != '\0', devices == 1);
    struct tti_gpu *last = gpu_open(devices - 1);
    gpu_ops()->here(devices - 1, pci);
    assert_string_equal(pci, last->properties.pci);
    gpu_ops()->here(-1, pci);
    assert_string_equal(pci, cuda ? last->properties.pci : "?");
    if (devices == 2) {
        struct tti_gpu *first = gpu_open(0);
        gpu_ops()->here(-1, pci);
        assert_string_equal(pci, "?");
        gpu_ops()->here(0, pci);
        assert_string_equal(pci, first->properties.pci);
        assert_string_not_equal(pci, last->properties.pci);
        first->ops->close(first);
    }
    last->ops->close(last);
    assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
}

static void test_memory(void **state)
{
    (void)state;
    struct tti_gpu *gpu = gpu_first();
    const struct tti_gpu_ops *ops = gpu->ops;
    static char plain[100];
    struct tti_gpu_pointer info;
    GPU_OK(ops->pointer(plain, &info));
    assert_int_equal(info.kind, TTI_MEMORY_HOST);
    assert_int_equal(info.device, -1);

    const enum tti_memory_kind kinds[] = {TTI_MEMORY_PINNED, TTI_MEMORY_DEVICE};
    uint64_t last = 0;
    for (int k = 0; k < 2; k++) {
        char *memory = NULL;
        GPU_OK(ops->alloc(gpu, kinds[k], 5000, (void **)&memory));
        GPU_OK(ops->pointer(memory + 4999, &info));
        assert_int_equal(info.kind, kinds[k]);
        assert_int_equal(info.device, 0);
        assert_ptr_equal(info.base, memory);
        assert_true(info.bytes >= 5000 && info.id != last);
        last = info.id;
        char out[16] = {0};
        GPU_OK(ops->fill(gpu, memory, 7, 5000, NULL));
        gpu_write(gpu, memory + 3, "hello", 5);
        gpu_read(gpu, out, memory, sizeof out);
        assert_memory_equal(out, "\7\7\7hello\7\7\7\7\7\7\7\7", 16);
        ops->free(gpu, memory);
        GPU_OK(ops->pointer(memory, &info));
        assert_int_equal(info.kind, TTI_MEMORY_HOST);
    }
    ops->free(gpu, NULL);
    void *nothing = NULL;
    GPU_FAILS(TUTTI_ERR_ARGUMENT, ops->alloc(gpu, TTI_MEMORY_DEVICE, 0, &nothing));

    char *mine = aligned_alloc(4096, 8192);
    GPU_OK(ops->host_register(gpu, mine, 8192));
    GPU_OK(ops->pointer(mine + 100, &info));
    assert_int_equal(info.kind, TTI_MEMORY_PINNED);
    GPU_FAILS(TUTTI_ERR_ARGUMENT,
              tti_region_register(mine, 8192)); /* the device would not see it */
    GPU_OK(ops->host_unregister(gpu, mine));
    GPU_OK(tti_region_register(mine, 8192));
    GPU_OK(ops->host_register(gpu, mine, 8192));
    GPU_OK(ops->host_unregister(gpu, mine));
    GPU_OK(tti_region_deregister(mine));
    GPU_OK(ops->pointer(mine + 100, &info));
    assert_int_equal(info.kind, TTI_MEMORY_HOST);
    free(mine);
    ops->close(gpu);
}

/* What lies at [at, at + 5) by way of the descriptor; a real dmabuf need not let itself be mapped.
 */
static bool dmabuf_shows(const struct tti_gpu *gpu, int fd, uint64_t at, const char *what)
{
    char *seen = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    if (seen == MAP_FAILED)
        return !strstr(gpu->properties.name, "Fake") && gpu->ops != tti_gpu_sim();
    const bool shows = memcmp(seen + at, what, 5) == 0;
    munmap(seen, 8192);
    return shows;
}

static void test_dmabuf(void **state)
{
    (void)state;
    struct tti_gpu *gpu = gpu_first();
    const struct tti_gpu_ops *ops = gpu->ops;
    char *memory = NULL, plain[8];
    uint64_t offset = 0;
    int fd = -1;
    /* The pages around 5000 bytes must be the allocation's, which begins with one of the driver's.
     */
    GPU_OK(ops->alloc(gpu, TTI_MEMORY_DEVICE, 2 << 20, (void **)&memory));
    GPU_OK(ops->fill(gpu, memory, 1, 5000, NULL));
    gpu_write(gpu, memory + 4100, "hello", 5);
    const enum tutti_result result = ops->memory_dmabuf(gpu, memory, 5000, &fd, &offset);
    if (result == TUTTI_ERR_UNSUPPORTED) { /* and so it says */
        assert_non_null(strstr(tti_error_text(), "dmabuf"));
        assert_int_equal(fd, -1);
    } else {
        GPU_OK(result);
        assert_true(dmabuf_shows(gpu, fd, offset + 4100, "hello"));
        close(fd);
        /* From the midst of the first page on. */
        GPU_OK(ops->memory_dmabuf(gpu, memory + 100, 4900, &fd, &offset));
        assert_true(dmabuf_shows(gpu, fd, offset + 4000, "hello"));
        close(fd);
        assert_true(ops->memory_dmabuf(gpu, plain, sizeof plain, &fd, &offset) != TUTTI_OK);
    }
    ops->free(gpu, memory);
    assert_true(ops->memory_dmabuf(gpu, memory, 5000, &fd, &offset) != TUTTI_OK);
    ops->close(gpu);
}

static atomic_int calls;
static void count_call(void *argument)
{
    atomic_fetch_add(&calls, *(int *)argument);
}

static void test_streams(void **state)
{
    (void)state;
    struct tti_gpu *gpu = gpu_first();
    const struct tti_gpu_ops *ops = gpu->ops;
    tutti_stream a, b;
    GPU_OK(ops->stream_create(gpu, &a));
    GPU_OK(ops->stream_create(gpu, &b));
    uint32_t *words = gpu_memory(gpu, 64, NULL), *seen = NULL;
    int one = 1;
    atomic_store(&calls, 0);
    /* Page-locked: a copy to other memory of the host would wait for the stream, and so for the end
     * of this test. */
    GPU_OK(ops->alloc(gpu, TTI_MEMORY_PINNED, 2 * sizeof *seen, (void **)&seen));

    /* b waits for an event of a, and a for a word that b's other half has not written yet. */
    struct tti_gpu_event *event = NULL;
    GPU_OK(ops->event_create(gpu, 0, &event));
    GPU_OK(ops->event_query(event)); /* never recorded: done */
    GPU_OK(ops->stream_wait(gpu, words, 5, a));
    GPU_OK(ops->host_call(gpu, count_call, &one, a));
    GPU_OK(ops->stream_write(gpu, words + 1, 6, a));
    GPU_OK(ops->event_record(event, a));
    GPU_OK(ops->event_hold(event, b));
    GPU_OK(ops->copy(gpu, seen, words, 2 * sizeof *seen, b));
    usleep(2000);
    assert_int_equal(atomic_load(&calls), 0);
    GPU_FAILS(TUTTI_IN_PROGRESS, ops->stream_query(gpu, b));
    GPU_FAILS(TUTTI_IN_PROGRESS, ops->event_query(event));
    GPU_FAILS(TUTTI_ERR_TIMEOUT, tti_gpu_stream_wait(gpu, b, tti_deadline_in(0.01), "b"));
    GPU_OK(ops->stream_write(gpu, words, 5, NULL));
    gpu_settle(gpu, b);
    assert_int_equal(atomic_load(&calls), 1);
    assert_int_equal(seen[0], 5);
    assert_int_equal(seen[1], 6);
    GPU_OK(tti_gpu_event_wait(gpu, event, tti_deadline_in(10), "event"));

    /* Recorded again in another stream, which comes to it first: that one counts. */
    GPU_OK(ops->stream_write(gpu, words + 2, 0, a));
    gpu_settle(gpu, a);
    GPU_OK(ops->stream_wait(gpu, words + 2, 7, a));
    GPU_OK(ops->event_record(event, a));
    GPU_OK(ops->event_record(event, b));
    gpu_settle(gpu, b);
    GPU_OK(ops->stream_write(gpu, words + 2, 7, b));
    gpu_settle(gpu, a);
    GPU_OK(ops->event_query(event));

    /* Order within one stream, many operations. */
    for (uint32_t i = 1; i <= 200; i++)
        GPU_OK(ops->stream_write(gpu, words, i, a));
    GPU_OK(ops->copy(gpu, seen, words, 4, a));
    gpu_settle(gpu, a);
    assert_int_equal(seen[0], 200);

    ops->event_destroy(event);
    ops->event_destroy(NULL);
    ops->stream_destroy(gpu, a);
    ops->stream_destroy(gpu, b);
    ops->free(gpu, words);
    ops->free(gpu, seen);
    ops->close(gpu);
}

static void test_elapsed(void **state)
{
    (void)state;
    struct tti_gpu *gpu = gpu_first();
    const struct tti_gpu_ops *ops = gpu->ops;
    struct tti_gpu_event *from = NULL, *to = NULL, *neither = NULL;
    GPU_OK(ops->event_create(gpu, TTI_EVENT_TIMING, &from));
    GPU_OK(ops->event_create(gpu, TTI_EVENT_TIMING, &to));
    char *memory = gpu_memory(gpu, 1 << 20, NULL);
    GPU_OK(ops->event_record(from, NULL));
    GPU_OK(ops->fill(gpu, memory, 1, 1 << 20, NULL));
    GPU_OK(ops->event_record(to, NULL));
    gpu_settle(gpu, NULL);
    double seconds = -1;
    GPU_OK(ops->event_elapsed(from, to, &seconds));
    assert_true(seconds >= 0 && seconds < 60);
    GPU_FAILS(TUTTI_ERR_ARGUMENT,
              ops->event_create(gpu, TTI_EVENT_TIMING | TTI_EVENT_INTERPROCESS, &neither));
    ops->event_destroy(from);
    ops->event_destroy(to);
    ops->free(gpu, memory);
    ops->close(gpu);
}

/* A graph over two streams: replays work on what the memory holds then. */
static void test_graph(void **state)
{
    (void)state;
    struct tti_gpu *gpu = gpu_first();
    const struct tti_gpu_ops *ops = gpu->ops;
    tutti_stream a, b;
    GPU_OK(ops->stream_create(gpu, &a));
    GPU_OK(ops->stream_create(gpu, &b));
    struct tti_gpu_event *fork = NULL, *join = NULL;
    GPU_OK(ops->event_create(gpu, 0, &fork));
    GPU_OK(ops->event_create(gpu, 0, &join));
    float *x = gpu_memory(gpu, 400, NULL), *y = gpu_memory(gpu, 400, NULL);
    const struct tti_reduce_copy_args args = {
        .src = {x, y}, .dst = {x}, .count = 100, .srcs = 2, .dsts = 1, .op = TUTTI_SUM};
    const struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_REDUCE_COPY,
                                          .type = TUTTI_FLOAT32,
                                          .blocks = 2,
                                          .threads = 64,
                                          .args = &args,
                                          .args_bytes = sizeof args};
    GPU_OK(ops->prepare(gpu, launch.kernel, launch.type));
    uint64_t capture = 1, other = 0;
    GPU_OK(ops->capture_id(gpu, a, &capture));
    assert_int_equal(capture, 0);
    GPU_OK(ops->capture_begin(gpu, a));
    GPU_OK(ops->capture_id(gpu, a, &capture));
    assert_true(capture != 0);
    GPU_OK(ops->event_record(fork, a));
    GPU_OK(ops->event_hold(fork, b));
    GPU_OK(ops->capture_id(gpu, b, &other));
    assert_int_equal(other, capture);
    GPU_OK(ops->launch(gpu, &launch, b));
    GPU_OK(ops->event_record(join, b));
    GPU_OK(ops->event_hold(join, a));
    GPU_OK(ops->copy(gpu, y, x, 400, a));
    struct tti_gpu_graph *graph = NULL;
    GPU_OK(ops->capture_end(gpu, a, &graph));

    float values[100], got[100];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 100; i++)
            values[i] = (float)(i + round);
        gpu_write(gpu, x, values, 400);
        gpu_write(gpu, y, values, 400);
        for (int i = 0; i < 3; i++) /* doubles three times */
            GPU_OK(ops->graph_launch(graph, i % 2 ? a : b));
        gpu_settle(gpu, a);
        gpu_settle(gpu, b);
        gpu_read(gpu, got, y, 400);
        for (int i = 0; i < 100; i++)
            assert_true(got[i] == 8 * values[i]);
    }
    ops->graph_destroy(graph);
    ops->graph_destroy(NULL);

    /* Waiting for what is captured is refused, and spoils the capture. */
    graph = NULL;
    GPU_OK(ops->capture_begin(gpu, a));
    GPU_OK(ops->capture_id(gpu, a, &other));
    assert_true(other != 0 && other != capture);
    GPU_OK(ops->fill(gpu, x, 0, 400, a));
    assert_true(ops->stream_query(gpu, a) != TUTTI_OK);
    assert_true(ops->capture_end(gpu, a, &graph) != TUTTI_OK);
    assert_null(graph);
    GPU_OK(ops->stream_query(gpu, a));

    ops->event_destroy(fork);
    ops->event_destroy(join);
    ops->free(gpu, x);
    ops->free(gpu, y);
    ops->stream_destroy(gpu, a);
    ops->stream_destroy(gpu, b);
    ops->close(gpu);
}

static uint32_t expected_probe(int probe, uint32_t thread, uint32_t threads)
{
    const uint32_t lane = thread % 32, warp = thread - lane;
    uint32_t ballot = 0;
    switch (probe) {
    case 0:
        return warp + (lane + 1) % 32;
    case 1:
        return warp + (lane ^ 5);
    case 2:
        return lane + 3 < 32 ? thread + 3 : thread;
    case 3:
        return lane >= 2 ? thread - 2 : thread;
    case 4:
        for (uint32_t i = 0; i < 32; i++)
            ballot |= (uint32_t)((warp + i) % 3 == 0) << i;
        return ballot;
    case 5:
        return 1;
    case 6:
        return threads / 2;
    case 8:
        return warp + (lane % 2 == 0 ? (lane + 2) % 32 : (lane + 4) % 32);
    case 9:
        return threads * (threads - 1) / 2;
    default:
        return 0;
    }
}

static void test_warps(void **state)
{
    (void)state;
    struct tti_gpu *gpu = gpu_first();
    const struct tti_gpu_ops *ops = gpu->ops;
    for (uint32_t threads = 32; threads <= 256; threads *= 2) {
        uint32_t counters[4] = {0, 0, 1000000, 0};
        const size_t bytes = sizeof(uint32_t) * TTI_WARP_PROBES * threads;
        uint32_t *results = malloc(bytes);
        const struct tti_warp_probe_args args = {.results = gpu_memory(gpu, bytes, NULL),
                                                 .counters = gpu_memory(gpu, 16, counters)};
        const struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_WARP_PROBE,
                                              .blocks = 1,
                                              .threads = threads,
                                              .args = &args,
                                              .args_bytes = sizeof args};
        GPU_OK(ops->launch(gpu, &launch, NULL));
        gpu_read(gpu, results, args.results, bytes);
        gpu_read(gpu, counters, args.counters, sizeof counters);
        uint64_t tickets = 0;
        for (int probe = 0; probe < TTI_WARP_PROBES; probe++) {
            for (uint32_t t = 0; t < threads; t++) {
                const uint32_t got = results[(uint32_t)probe * threads + t];
                if (probe == 7)
                    tickets += got;
                else if (got != expected_probe(probe, t, threads))
                    fail_msg("probe %d of thread %u of %u: %u, expected %u", probe, t, threads, got,
                             expected_probe(probe, t, threads));
            }
        }
        assert_int_equal(tickets, threads * (threads - 1) / 2); /* each number once */
        assert_int_equal(counters[0], threads);
        assert_int_equal(counters[1], threads - 1);
        assert_int_equal(counters[2], 0);
        assert_int_equal(counters[3], 77);
        free(results);
        ops->free(gpu, args.results);
        ops->free(gpu, args.counters);
    }
    ops->close(gpu);
}

/* Both sides of the self-test of mapped memory, on the first and the last device. */
static void test_peer_probe(void **state)
{
    (void)state;
    enum { WORDS = 1000 };
    const int devices = gpu_devices(2);
    struct tti_gpu *gpu[2] = {gpu_open(0), gpu_open(devices - 1)};
    const struct tti_gpu_ops *ops = gpu[0]->ops;
    if (devices > 1) {
        bool can = false;
        GPU_OK(ops->peer_can_access(gpu[0], 1, &can));
        if (!can)
            skip();
        GPU_OK(ops->peer_enable(gpu[0], 1));
        GPU_OK(ops->peer_enable(gpu[1], 0));
    }
    uint32_t *memory[2], wrong = 99;
    uint64_t *flag[2];
    struct tti_gpu_status *status = NULL;
    tutti_stream stream[2];
    for (int i = 0; i < 2; i++) {
        memory[i] = gpu_memory(gpu[i], 4 * WORDS, NULL);
        flag[i] = gpu_memory(gpu[i], 64, NULL);
        GPU_OK(ops->stream_create(gpu[i], &stream[i]));
    }
    GPU_OK(ops->alloc(gpu[0], TTI_MEMORY_PINNED, sizeof *status, (void **)&status));
    memset(status, 0, sizeof *status);
    for (int i = 0; i < 2; i++)
        GPU_OK(ops->prepare(gpu[i], TTI_KERNEL_PEER_PROBE, TUTTI_INT8));
    for (uint32_t seed = 10; seed < 16; seed += 2) {
        for (int i = 0; i < 2; i++) {
            const struct tti_peer_probe_args args = {.mine = memory[i],
                                                     .theirs = memory[1 - i],
                                                     .my_flag = flag[i],
                                                     .their_flag = flag[1 - i],
                                                     .words = WORDS,
                                                     .seed = seed,
                                                     .status = status,
                                                     .timeout_ns = UINT64_C(20000000000),
                                                     .wrong = (uint32_t *)(flag[i] + 2)};
            const struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_PEER_PROBE,
                                                  .blocks = 1,
                                                  .threads = 64,
                                                  .args = &args,
                                                  .args_bytes = sizeof args};
            GPU_OK(ops->launch(gpu[i], &launch, stream[i]));
        }
        for (int i = 0; i < 2; i++) {
            gpu_settle(gpu[i], stream[i]);
            gpu_read(gpu[i], &wrong, flag[i] + 2, 4);
            assert_int_equal(wrong, 0);
        }
        assert_int_equal(status->failed, 0);
    }
    for (int i = 0; i < 2; i++) {
        ops->stream_destroy(gpu[i], stream[i]);
        ops->free(gpu[i], memory[i]);
        ops->free(gpu[i], flag[i]);
    }
    ops->free(gpu[0], status);
    ops->close(gpu[0]);
    ops->close(gpu[1]);
}

static void test_refusals(void **state)
{
    (void)state;
    struct tti_gpu *gpu = gpu_first();
    const struct tti_gpu_ops *ops = gpu->ops, *none = NULL;
    const struct tti_copy_args args = {.dsts = 1};
    struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_COPY,
                                    .blocks = 1,
                                    .threads = 48,
                                    .args = &args,
                                    .args_bytes = sizeof args};
    GPU_FAILS(TUTTI_ERR_ARGUMENT, ops->launch(gpu, &launch, NULL));
    launch.threads = 64;
    launch.kernel = TTI_KERNEL_COUNT;
    GPU_FAILS(TUTTI_ERR_UNSUPPORTED, ops->launch(gpu, &launch, NULL));
    GPU_FAILS(TUTTI_ERR_ARGUMENT, tti_gpu_find("abacus", &none));
    assert_non_null(strstr(tti_error_text(), "abacus"));
    int blocks = 0;
    launch.kernel = TTI_KERNEL_COPY;
    GPU_OK(ops->resident(gpu, &launch, &blocks));
    assert_in_range(blocks, gpu->properties.sms, 100000);
    ops->close(gpu);
}

/* One thread waits at the block's barrier for another that waits for it elsewhere. */
static void stuck_kernel(const void *args)
{
    (void)args;
    if (tti_sim_thread_index.x == 0)
        tti_sim_warp_barrier(3);
    else if (tti_sim_thread_index.x == 1)
        (void)tti_sim_barrier(TTI_SIM_COUNT, 1);
}

/* Who waits for a point behind work that failed is told so, and is not held up. */
static void test_failure(void **state)
{
    (void)state;
    struct tti_gpu *gpu = gpu_open(0);
    const struct tti_gpu_ops *ops = gpu->ops;
    if (ops != tti_gpu_sim()) {
        print_message(
            "test_failure: SKIPPED on %s: a kernel that fails spoils a real device's context "
            "for all tests of the process; the simulated device has it\n",
            ops->name);
        ops->close(gpu);
        skip();
    }
    const struct tti_gpu_own own = {.symbol = "stuck", .simulated = stuck_kernel};
    const int none = 0;
    const struct tti_gpu_launch launch = {
        .blocks = 1, .threads = 32, .args = &none, .args_bytes = sizeof none, .own = &own};
    struct tti_gpu_event *before = NULL, *behind = NULL;
    tutti_stream stream = NULL;
    GPU_OK(ops->stream_create(gpu, &stream));
    GPU_OK(ops->event_create(gpu, 0, &before));
    GPU_OK(ops->event_create(gpu, TTI_EVENT_INTERPROCESS, &behind));
    GPU_OK(ops->event_record(before, stream));
    GPU_OK(ops->launch(gpu, &launch, stream));
    GPU_OK(ops->event_record(behind, stream));
    GPU_FAILS(TUTTI_ERR_INTERNAL,
              tti_gpu_event_wait(gpu, behind, tti_deadline_in(60), "the point behind"));
    assert_non_null(strstr(tti_error_text(), "stuck"));
    GPU_FAILS(TUTTI_ERR_INTERNAL, ops->event_query(behind));
    GPU_OK(ops->event_query(before));
    GPU_FAILS(TUTTI_ERR_INTERNAL, ops->stream_query(gpu, stream));
    ops->event_destroy(before);
    ops->event_destroy(behind);
    ops->stream_destroy(gpu, stream);
    ops->close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_here),       cmocka_unit_test(test_properties),
        cmocka_unit_test(test_memory),     cmocka_unit_test(test_dmabuf),
        cmocka_unit_test(test_streams),    cmocka_unit_test(test_elapsed),
        cmocka_unit_test(test_graph),      cmocka_unit_test(test_warps),
        cmocka_unit_test(test_peer_probe), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
