/* Memory of a device that is free as soon as that holds nobody up. Freeing waits for all that is
 * queued on the device, by other threads of the process too; and what is queued may wait for the
 * very thread that frees. So who is through with memory retires it. Whoever queues work is a user,
 * holds its device's gate while it does, and can be asked whether its work is over. Where no user's
 * work waits for threads of this process, what is retired is freed at once, waiting for the device.
 * Where one's does it is freed when all devices are found idle. Nobody waits for that: a reclaim
 * that comes at a bad time does nothing, and a later one does it. A thread that lets operations
 * through does not reclaim, nor retire.
 *
 * Nor is a device waited for any more once a user's work has failed: then others' work may wait for
 * what never comes, until they are ended too. */
#ifndef TTI_DEVICE_RECLAIM_H
#define TTI_DEVICE_RECLAIM_H

#include "device/gpu.h"

struct tti_gpu_domain;
struct tti_gpu_gate;

/* A queue of work on one device. Owned by who enters. */
struct tti_gpu_user {
    struct tti_gpu_user *next;
    struct tti_gpu_domain *domain; /* NULL: not entered */
    struct tti_gpu_gate *gate;     /* its device's */
    bool waits;                    /* for threads of this process: set before it enters */
    bool left;                     /* its owner is gone, its work is not over */
    /* Nothing of it is queued, nor will be without the gate. Nobody has the gate meanwhile.
     * `but_graphs`: other than by launching what was captured. */
    bool (*idle)(const struct tti_gpu_user *user, bool but_graphs);
};

enum tutti_result tti_gpu_user_enter(struct tti_gpu_user *user, const struct tti_gpu *gpu);
/* `idle` false: work of it is queued still. Then it stays and is asked, on the owner's memory,
 * until it is over, and nothing is reclaimed before that. One that has not entered may leave. */
void tti_gpu_user_leave(struct tti_gpu_user *user, bool idle);

/* The user's work has failed: nothing is reclaimed in this process from now on but on idle devices,
 * for which graphs that may be launched do not count where no user waits. */
void tti_gpu_user_failed(const struct tti_gpu_user *user);

/* Around queueing: waits for a reclaim that is under way on idle devices. Not twice. */
void tti_gpu_gate_enter(struct tti_gpu_user *user);
void tti_gpu_gate_leave(struct tti_gpu_user *user);

/* Have end(gpu, what) called when it holds nobody up, by any thread that reclaims, in the order of
 * these calls; at once, and blocking, where no user waits. It may free what it is called with, and
 * close `gpu`; it may not come back here. */
void tti_gpu_retire(struct tti_gpu *gpu, void (*end)(struct tti_gpu *gpu, void *what), void *what);
/* The usual ends: `free`, `memory_release`, `close`. NULL memory is fine. */
void tti_gpu_retire_memory(struct tti_gpu *gpu, void *memory);
void tti_gpu_retire_import(struct tti_gpu *gpu, void *memory);
void tti_gpu_retire_device(struct tti_gpu *gpu);
/* End what was retired on any device of this implementation, if it may be now. Blocks for the
 * devices where no user waits. Not inside the gate. */
void tti_gpu_reclaim(const struct tti_gpu_ops *ops);
/* The same on idle devices only, so that it does not block: where the user's thread comes by. */
void tti_gpu_reclaim_idle(const struct tti_gpu_user *user);
/* Does any user's work wait for threads of this process? */
bool tti_gpu_waited(const struct tti_gpu_ops *ops);
/* What was retired and is not reclaimed. */
int tti_gpu_retired(const struct tti_gpu_ops *ops);

#endif
