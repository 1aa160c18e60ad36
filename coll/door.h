/* What other doors into the library (nccl), and the benchmark, ask beyond tutti.h. */
#ifndef TTI_COLL_DOOR_H
#define TTI_COLL_DOOR_H

#include "device/gpu.h"

/* The implementation that new communicators use for device memory, by TUTTI_DEVICE or because
 * NVIDIA's driver is loaded; NULL for none. */
enum tutti_result tti_gpu_in_use(const struct tti_gpu_ops **ops);
/* Has this process NVIDIA's driver loaded? Loads nothing. */
bool tti_gpu_driver_loaded(void);
/* Load it, for a process that will use it. One that does not start then is as none. */
void tti_gpu_driver_ask(void);
/* Set up for device memory now what the first collective on it would: collective, on `device`. From
 * here on calls on device memory do not block, and may be captured. Nothing if a rank has no
 * device: such calls fail then, and say which. */
enum tutti_result tti_comm_prepare_device(tutti_comm *comm, int device);
/* From here on NULL is a stream for page-locked memory, too, as it always is for device memory: the
 * device's default stream. Else such memory without a stream is host memory. Before the first
 * operation, on all ranks alike; nothing if a rank has no device. */
void tti_comm_order_default(tutti_comm *comm);
/* Communicators that the calling thread makes from here on are for this device, so that they take
 * NICs near it. -1: for the one that the process works on, as at first. */
void tti_comm_by_device(int device);
/* Give the device memory that the communicator holds back until tti_comm_prepare_device, or the
 * next collective on device memory: collective, when nothing is queued that uses it. Waits for
 * streams. ARGUMENT, and nothing changed, if operations were captured: graphs have its addresses.
 */
enum tutti_result tti_comm_release_device(tutti_comm *comm);
/* Wait until what was queued on streams for device memory is over (not what was captured). */
enum tutti_result tti_comm_settle(tutti_comm *comm);
/* The communicator has failed because another rank is gone (it aborted, ended or died), and when
 * this one heard of that, nothing was under way here: what it had called was over. Only what it
 * calls from then on fails, and ends this. */
bool tti_comm_spared(tutti_comm *comm);
/* The communicator has failed because another rank is gone, and what this one had called is over
 * and was none the worse for it, as far as can be told: of graphs that were launched kernels tell.
 * For who will call nothing more. */
bool tti_comm_unharmed(tutti_comm *comm);
/* Wait for a stream of the communicator's device, until its deadline or failure. */
enum tutti_result tti_comm_stream_wait(tutti_comm *comm, struct tti_gpu *gpu, tutti_stream stream,
                                       const char *what);
/* How the last operation on device memory that this rank queued goes: "staged", "levels", "window",
 * "lent", "messages", "alone", or what coupled kernels do: "one_shot_ll", "one_shot_ll128",
 * "two_shot", "direct", "nvls", or the algorithm whose plan runs. "none": there was none. */
const char *tti_comm_device_way(tutti_comm *comm);
/* Does the uneven form (tutti/uneven.h) run by a plan on host memory, as tutti_comm_choices has it?
 * Else it is messages. */
bool tti_comm_uneven_plan(const tutti_comm *comm, enum tutti_collective collective);
/* The number of the communicator: the same on all its ranks, and on no other communicator. */
uint64_t tti_comm_number(const tutti_comm *comm);

#endif
