/* What all GPUs share (gpu.h): kernels by name, implementations by name, waiting with a deadline.
 */
#include "device/gpu.h"

#include "base/atomic.h"
#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static const struct {
    const char *name;
    bool typed;
} gpu_kernels[TTI_KERNEL_COUNT] = {
    [TTI_KERNEL_COPY] = {"copy", false},
    [TTI_KERNEL_REDUCE_COPY] = {"reduce_copy", true},
    [TTI_KERNEL_ONE_SHOT_LL] = {"one_shot_ll", true},
    [TTI_KERNEL_ONE_SHOT_LL128] = {"one_shot_ll128", true},
    [TTI_KERNEL_TWO_SHOT] = {"two_shot", true},
    [TTI_KERNEL_DIRECT] = {"direct", true},
    [TTI_KERNEL_PEER_PROBE] = {"peer_probe", false},
    [TTI_KERNEL_WARP_PROBE] = {"warp_probe", false},
    [TTI_KERNEL_TELL] = {"tell", false},
    [TTI_KERNEL_PLACE] = {"place", false},
    [TTI_KERNEL_PLAN_RUN] = {"plan_run", false},
    [TTI_KERNEL_TRAIN_SCALE] = {"train_scale", false},
    [TTI_KERNEL_TRAIN_NORM] = {"train_norm", false},
    [TTI_KERNEL_TRAIN_STEP] = {"train_step", false},
    [TTI_KERNEL_NVLS] = {"nvls", true},
    [TTI_KERNEL_MESSAGES] = {"messages", false},
    [TTI_KERNEL_MESSAGE_LIST] = {"message_list", false},
};

/* As TTI_FOR_TYPES of cuda/element.cuh names them. */
static const char *const gpu_types[TUTTI_TYPE_COUNT] = {
    [TUTTI_INT8] = "int8",         [TUTTI_UINT8] = "uint8",      [TUTTI_INT32] = "int32",
    [TUTTI_UINT32] = "uint32",     [TUTTI_INT64] = "int64",      [TUTTI_UINT64] = "uint64",
    [TUTTI_FLOAT16] = "float16",   [TUTTI_FLOAT32] = "float32",  [TUTTI_FLOAT64] = "float64",
    [TUTTI_BFLOAT16] = "bfloat16", [TUTTI_FLOAT8_E4M3] = "e4m3", [TUTTI_FLOAT8_E5M2] = "e5m2",
};

bool tti_gpu_kernel_typed(enum tti_gpu_kernel kernel)
{
    return (unsigned)kernel < TTI_KERNEL_COUNT && gpu_kernels[kernel].typed;
}

const char *tti_gpu_kernel_name(enum tti_gpu_kernel kernel)
{
    return (unsigned)kernel < TTI_KERNEL_COUNT ? gpu_kernels[kernel].name : "unknown kernel";
}

const char *tti_gpu_launch_name(const struct tti_gpu_launch *launch)
{
    return launch->own ? launch->own->symbol : tti_gpu_kernel_name(launch->kernel);
}

void tti_gpu_kernel_symbol(enum tti_gpu_kernel kernel, enum tutti_type type, char symbol[64])
{
    const bool typed = tti_gpu_kernel_typed(kernel) && (unsigned)type < TUTTI_TYPE_COUNT;
    snprintf(symbol, 64, "tti_kernel_%s%s%s", tti_gpu_kernel_name(kernel), typed ? "_" : "",
             typed ? gpu_types[type] : "");
}

/* ---- Processes --------------------------------------------------------------------------------
 */

static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static uint64_t process_number;

static void process_draw(void)
{
    if (getrandom(&process_number, sizeof process_number, 0) != (ssize_t)sizeof process_number)
        process_number = tti_now_ns();
}

void tti_gpu_process(uint64_t process[2])
{
    pthread_once(&process_once, process_draw);
    process[0] = (uint64_t)getpid();
    process[1] = process_number;
}

/* ---- Implementations --------------------------------------------------------------------------
 */

enum { IMPLEMENTATIONS = 2 };

static const struct tti_gpu_ops *implementation(size_t i)
{
    return i == 0 ? tti_gpu_cuda() : tti_gpu_sim();
}

enum tutti_result tti_gpu_find(const char *name, const struct tti_gpu_ops **ops)
{
    for (size_t i = 0; i < IMPLEMENTATIONS; i++) {
        if (strcmp(implementation(i)->name, name) == 0) {
            *ops = implementation(i);
            return TUTTI_OK;
        }
    }
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "there is no GPU implementation \"%s\"; there are cuda, sim", name);
}

/* ---- Waiting ----------------------------------------------------------------------------------
 */

/* By time: what a query takes differs between drivers by a factor of a hundred. On a core that
 * nobody else wants yielding is spinning, too. */
enum { WAIT_SPIN_NS = 20000, WAIT_YIELD_NS = 2000000 };

static bool wait_pause(struct tti_gpu_patience *patience)
{
    const uint64_t now = tti_now_ns();
    if (patience->since == 0)
        patience->since = now;
    if (now - patience->since < WAIT_SPIN_NS) {
        tti_cpu_relax();
        return false;
    }
    if (now - patience->since < WAIT_YIELD_NS) {
        sched_yield();
        return false;
    }
    tti_nap(patience->rests++);
    return true;
}

bool tti_gpu_pause(const struct tti_gpu_ops *ops, struct tti_gpu_event *event,
                   struct tti_gpu_patience *patience)
{
    if (!ops->event_rest)
        return wait_pause(patience);
    ops->event_rest(event);
    patience->rests++;
    return true;
}

static enum tutti_result wait_late(const char *what)
{
    return TTI_FAIL(TUTTI_ERR_TIMEOUT,
                    "%s: the device was not through at the deadline; a rank may be missing, or the "
                    "timeout too short",
                    what);
}

enum tutti_result tti_gpu_stream_wait(struct tti_gpu *gpu, tutti_stream stream, uint64_t deadline,
                                      const char *what)
{
    struct tti_gpu_patience patience = {0};
    for (;;) {
        const enum tutti_result result = gpu->ops->stream_query(gpu, stream);
        if (result != TUTTI_IN_PROGRESS)
            return result == TUTTI_OK ? TUTTI_OK : TTI_CONTEXT(result, "%s", what);
        if (tti_deadline_passed(deadline))
            return wait_late(what);
        if (gpu->ops->stream_rest)
            gpu->ops->stream_rest(gpu, stream);
        else
            (void)wait_pause(&patience);
    }
}

enum tutti_result tti_gpu_event_wait(struct tti_gpu *gpu, struct tti_gpu_event *event,
                                     uint64_t deadline, const char *what)
{
    struct tti_gpu_patience patience = {0};
    for (;;) {
        const enum tutti_result result = gpu->ops->event_query(event);
        if (result != TUTTI_IN_PROGRESS)
            return result == TUTTI_OK ? TUTTI_OK : TTI_CONTEXT(result, "%s", what);
        if (tti_deadline_passed(deadline))
            return wait_late(what);
        (void)tti_gpu_pause(gpu->ops, event, &patience);
    }
}
