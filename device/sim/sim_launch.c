/* Kernels of the simulated device: which function each is, and the host threads that run blocks.
 *
 * A device holds TTI_SIM_SMS * TTI_SIM_BLOCKS_PER_SM blocks at a time, of all grids together, each
 * on a worker thread (made when first needed). Blocks start in the order of their grids and
 * numbers; a grid that does not fit waits, as on a GPU. The fibers that a block runs on are lent to
 * its worker, the last that were given back first: there are as many crews as blocks were ever
 * under way at a time on a device, not as workers, and they outlive the device's opening. Every
 * fiber is a thread to ThreadSanitizer, and each barrier of each costs it time by how many there
 * are. Devices have crews of their own: what runs on the same fibers, or takes them by the same
 * lock, is in order to ThreadSanitizer, and a race between two GPUs' kernels would not be seen. */
#include "device/sim/sim_state.h"

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"

#include <stdlib.h>
#include <unistd.h>

enum { MOST_WORKERS = TTI_SIM_SMS * TTI_SIM_BLOCKS_PER_SM };

#if defined(TTI_SIM_KERNELS)
#define DECLARE(name) void tti_kernel_##name(const void *args);
#define DECLARE_TYPED(name)  \
    DECLARE(name##_int8)     \
    DECLARE(name##_uint8)    \
    DECLARE(name##_int32)    \
    DECLARE(name##_uint32)   \
    DECLARE(name##_int64)    \
    DECLARE(name##_uint64)   \
    DECLARE(name##_float16)  \
    DECLARE(name##_float32)  \
    DECLARE(name##_float64)  \
    DECLARE(name##_bfloat16) \
    DECLARE(name##_e4m3)     \
    DECLARE(name##_e5m2)
#define TYPED(name)                                                                             \
    {                                                                                           \
        [TUTTI_INT8] = tti_kernel_##name##_int8, [TUTTI_UINT8] = tti_kernel_##name##_uint8,     \
        [TUTTI_INT32] = tti_kernel_##name##_int32, [TUTTI_UINT32] = tti_kernel_##name##_uint32, \
        [TUTTI_INT64] = tti_kernel_##name##_int64, [TUTTI_UINT64] = tti_kernel_##name##_uint64, \
        [TUTTI_FLOAT16] = tti_kernel_##name##_float16,                                          \
        [TUTTI_FLOAT32] = tti_kernel_##name##_float32,                                          \
        [TUTTI_FLOAT64] = tti_kernel_##name##_float64,                                          \
        [TUTTI_BFLOAT16] = tti_kernel_##name##_bfloat16,                                        \
        [TUTTI_FLOAT8_E4M3] = tti_kernel_##name##_e4m3,                                         \
        [TUTTI_FLOAT8_E5M2] = tti_kernel_##name##_e5m2                                          \
    }
DECLARE(copy)
DECLARE(peer_probe)
DECLARE(warp_probe)
DECLARE(tell)
DECLARE(place)
DECLARE(plan_run)
DECLARE(messages)
DECLARE(message_list)
DECLARE(train_scale)
DECLARE(train_norm)
DECLARE(train_step)
DECLARE_TYPED(reduce_copy)
DECLARE_TYPED(one_shot_ll)
DECLARE_TYPED(one_shot_ll128)
DECLARE_TYPED(two_shot)
DECLARE_TYPED(direct)
DECLARE(nvls_float16)
DECLARE(nvls_float32)
DECLARE(nvls_bfloat16)

static tti_sim_kernel *const run_kernels[TTI_KERNEL_COUNT][TUTTI_TYPE_COUNT] = {
    [TTI_KERNEL_COPY] = {tti_kernel_copy},
    [TTI_KERNEL_REDUCE_COPY] = TYPED(reduce_copy),
    [TTI_KERNEL_ONE_SHOT_LL] = TYPED(one_shot_ll),
    [TTI_KERNEL_ONE_SHOT_LL128] = TYPED(one_shot_ll128),
    [TTI_KERNEL_TWO_SHOT] = TYPED(two_shot),
    [TTI_KERNEL_DIRECT] = TYPED(direct),
    [TTI_KERNEL_PEER_PROBE] = {tti_kernel_peer_probe},
    [TTI_KERNEL_WARP_PROBE] = {tti_kernel_warp_probe},
    [TTI_KERNEL_TELL] = {tti_kernel_tell},
    [TTI_KERNEL_PLACE] = {tti_kernel_place},
    [TTI_KERNEL_PLAN_RUN] = {tti_kernel_plan_run},
    [TTI_KERNEL_MESSAGES] = {tti_kernel_messages},
    [TTI_KERNEL_MESSAGE_LIST] = {tti_kernel_message_list},
    [TTI_KERNEL_TRAIN_SCALE] = {tti_kernel_train_scale},
    [TTI_KERNEL_TRAIN_NORM] = {tti_kernel_train_norm},
    [TTI_KERNEL_TRAIN_STEP] = {tti_kernel_train_step},
    [TTI_KERNEL_NVLS] = {[TUTTI_FLOAT16] = tti_kernel_nvls_float16,
                         [TUTTI_FLOAT32] = tti_kernel_nvls_float32,
                         [TUTTI_BFLOAT16] = tti_kernel_nvls_bfloat16},
};
#else
static tti_sim_kernel *const run_kernels[TTI_KERNEL_COUNT][TUTTI_TYPE_COUNT];
#endif

tti_sim_kernel *tti_sim_kernel_of(enum tti_gpu_kernel kernel, enum tutti_type type)
{
    const enum tutti_type index = tti_gpu_kernel_typed(kernel) ? type : TUTTI_INT8;
    if ((unsigned)kernel >= TTI_KERNEL_COUNT || (unsigned)index >= TUTTI_TYPE_COUNT)
        return NULL;
    return run_kernels[kernel][index];
}

/* ---- Workers ----------------------------------------------------------------------------------
 */

struct grid {
    struct grid *next; /* with blocks that nobody has begun */
    const struct tti_gpu_launch *launch;
    tti_sim_kernel *kernel;
    uint64_t seed;
    unsigned begun, over;
    unsigned stuck;       /* threads of a block that could not end */
    bool memory;          /* it ran out */
    pthread_cond_t ended; /* for who launched it */
};

/* One that has nothing to do is called by name, and no more of them than there are blocks: a kernel
 * of one block would else wake all 32. */
struct worker {
    struct run_device *device;
    pthread_t thread;
    pthread_cond_t wake;
    bool called;
    struct worker *below; /* of those that nobody has called */
};

struct run_device {
    pthread_mutex_t lock;
    struct grid *first, **last;
    struct worker workers[MOST_WORKERS];
    struct worker *resting;                  /* the last to rest is on top */
    int worker_count, idle;                  /* idle: resting, or called and not awake yet */
    struct tti_sim_crew *crew[MOST_WORKERS]; /* that no block runs on; the last given is on top */
    int crew_count;
    bool ending;
    uint64_t launches;
};

static struct run_device run_devices[TTI_SIM_MOST_DEVICES];
static pthread_once_t run_once = PTHREAD_ONCE_INIT;
static uint64_t run_seed;

static void run_init(void)
{
    for (int i = 0; i < TTI_SIM_MOST_DEVICES; i++) {
        pthread_mutex_init(&run_devices[i].lock, NULL);
        run_devices[i].last = &run_devices[i].first;
    }
    const char *text = tti_config_text("TUTTI_SIM_SEED");
    run_seed = text ? strtoull(text, NULL, 0) : tti_now_ns() ^ (uint64_t)getpid() << 40;
    TTI_LOG(TTI_LOG_INFO, "simulated device: TUTTI_SIM_SEED=%llu", (unsigned long long)run_seed);
}

__attribute__((destructor)) static void crews_destroy(void)
{
    for (int i = 0; i < TTI_SIM_MOST_DEVICES; i++) {
        struct run_device *device = &run_devices[i];
        while (device->crew_count > 0)
            tti_sim_crew_destroy(device->crew[--device->crew_count]);
    }
}

uint64_t tti_sim_seed(void)
{
    pthread_once(&run_once, run_init);
    return run_seed;
}

/* Run the next block of `grid`; the device's lock is held, and let go meanwhile. */
static void worker_block(struct run_device *device, struct grid *grid)
{
    const struct tti_gpu_launch *launch = grid->launch;
    const struct tti_sim_work work = {
        .kernel = grid->kernel,
        .args = launch->args,
        .block = grid->begun++,
        .blocks = launch->blocks,
        .threads = launch->threads,
        .shared_bytes = launch->shared_bytes,
        .seed = grid->seed,
    };
    if (grid->begun == launch->blocks) {
        device->first = grid->next;
        if (!device->first)
            device->last = &device->first;
    }
    struct tti_sim_crew *crew = device->crew_count > 0 ? device->crew[--device->crew_count] : NULL;
    pthread_mutex_unlock(&device->lock);
    if (!crew)
        crew = tti_sim_crew_create();
    unsigned stuck = 0;
    const bool ran = crew && tti_sim_crew_run(crew, &work, &stuck);
    if (!ran)
        tti_sim_crew_destroy(crew);
    pthread_mutex_lock(&device->lock);
    if (ran)
        device->crew[device->crew_count++] = crew; /* one for each worker at most */
    if (stuck > 0)
        grid->stuck = stuck;
    else if (!ran)
        grid->memory = true;
    if (++grid->over == launch->blocks)
        pthread_cond_signal(&grid->ended);
}

/* Until it is called; the device's lock is held, and let go meanwhile. */
static void worker_rest(struct run_device *device, struct worker *self)
{
    device->idle++;
    self->below = device->resting;
    device->resting = self;
    while (!self->called)
        pthread_cond_wait(&self->wake, &device->lock);
    self->called = false;
    device->idle--;
}

/* So many of those that rest, or all there are; under the lock. */
static void workers_call(struct run_device *device, unsigned count)
{
    for (; count > 0 && device->resting; count--) {
        struct worker *worker = device->resting;
        device->resting = worker->below;
        worker->called = true;
        pthread_cond_signal(&worker->wake);
    }
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    struct run_device *device = self->device;
    pthread_mutex_lock(&device->lock);
    while (!device->ending) {
        if (device->first)
            worker_block(device, device->first);
        else
            worker_rest(device, self);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

static int worker_start(struct run_device *device)
{
    struct worker *worker = &device->workers[device->worker_count];
    worker->device = device;
    worker->called = false;
    pthread_cond_init(&worker->wake, NULL);
    const int error = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (error)
        pthread_cond_destroy(&worker->wake);
    else
        device->worker_count++;
    return error;
}

/* Under the lock: a worker for each block that waits, as far as the device goes. */
static enum tutti_result workers_ensure(struct run_device *device, unsigned blocks)
{
    unsigned wanted = blocks;
    for (const struct grid *grid = device->first; grid; grid = grid->next)
        wanted += grid->launch->blocks - grid->begun;
    for (unsigned have = (unsigned)device->idle; have < wanted; have++) {
        if (device->worker_count == MOST_WORKERS)
            break;
        const int error = worker_start(device);
        if (error && device->worker_count == 0)
            return TTI_FAIL(TUTTI_ERR_SYSTEM,
                            "simulated device: cannot make a thread (error %d); lower the number "
                            "of threads or raise the limit (ulimit -u)",
                            error);
        if (error)
            break;
    }
    return TUTTI_OK;
}

enum tutti_result tti_sim_run(int index, const struct tti_gpu_launch *launch)
{
    pthread_once(&run_once, run_init);
    struct run_device *device = &run_devices[index];
    struct grid grid = {.launch = launch,
                        .kernel = launch->own ? launch->own->simulated
                                              : tti_sim_kernel_of(launch->kernel, launch->type)};
    pthread_mutex_lock(&device->lock);
    const enum tutti_result result = workers_ensure(device, launch->blocks);
    if (result != TUTTI_OK) {
        pthread_mutex_unlock(&device->lock);
        return result;
    }
    grid.seed = run_seed + ++device->launches * 1000003 + (uint64_t)index;
    pthread_cond_init(&grid.ended, NULL);
    *device->last = &grid;
    device->last = &grid.next;
    workers_call(device, launch->blocks);
    while (grid.over < launch->blocks)
        pthread_cond_wait(&grid.ended, &device->lock);
    pthread_mutex_unlock(&device->lock);
    pthread_cond_destroy(&grid.ended);
    if (grid.stuck)
        return TTI_FAIL(TUTTI_ERR_INTERNAL,
                        "simulated device: kernel %s: %u threads of a block wait at a barrier that "
                        "others do not reach (TUTTI_SIM_SEED=%llu)",
                        tti_gpu_launch_name(launch), grid.stuck, (unsigned long long)run_seed);
    if (grid.memory)
        return TTI_FAIL(TUTTI_ERR_MEMORY,
                        "simulated device: no memory for the threads of a block of %u",
                        launch->threads);
    return TUTTI_OK;
}

void tti_sim_workers_end(int index)
{
    pthread_once(&run_once, run_init);
    struct run_device *device = &run_devices[index];
    pthread_mutex_lock(&device->lock);
    device->ending = true;
    workers_call(device, MOST_WORKERS);
    pthread_mutex_unlock(&device->lock);
    for (int i = 0; i < device->worker_count; i++) {
        pthread_join(device->workers[i].thread, NULL);
        pthread_cond_destroy(&device->workers[i].wake);
    }
    device->worker_count = 0;
    device->ending = false;
}
