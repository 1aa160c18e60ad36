/* Operations on device memory, as the rest of coll sees them: whether a call is one, queueing it on
 * its stream, requests. Host-only communicators have comm->gpu == NULL and pay one comparison. */
#ifndef TTI_COLL_GPU_CALLS_H
#define TTI_COLL_GPU_CALLS_H

#include "coll/operation.h"

struct tti_gpu_mark;
struct tti_gpu_ops;
struct tutti_comm;

/* Collective by its effect: all ranks of a communicator set TUTTI_DEVICE alike. Finds the
 * implementation; opens nothing. */
enum tutti_result tti_gpu_side_create(struct tutti_comm *comm);
/* False: work is still on a stream, which may come to give it (tti_work_give). Then
 * tti_gpu_side_leave comes last of all that ends the communicator, whose memory stays. */
bool tti_gpu_side_destroy(struct tutti_comm *comm);
void tti_gpu_side_leave(struct tutti_comm *comm);
/* The implementation; NULL: host memory only. */
const struct tti_gpu_ops *tti_gpu_side_ops(const struct tutti_comm *comm);
void tti_gpu_side_memory(const struct tutti_comm *comm, struct tutti_memory *memory);

/* Is this call one on device memory? Errors: ARGUMENT for a stream with host memory. */
enum tutti_result tti_gpu_takes(struct tutti_comm *comm, const struct tti_operation *operation,
                                tutti_stream stream, bool *takes);
/* A message or an even collective of no elements, of a communicator whose ranks all have devices:
 * nobody sends or waits, since nothing says where it lies: on host memory some ranks would wait,
 * and under capture once, not in each replay. Without a stream it is over at once. */
bool tti_gpu_drops(const struct tutti_comm *comm, const struct tti_operation *operation);
/* Before tti_gpu_call, and without a lock: wait until the stream has room, if ranks of the process
 * share the device (gpu_ahead.c). On an error nothing was queued. TIMEOUT: it had none. */
enum tutti_result tti_gpu_room(struct tutti_comm *comm, tutti_stream stream);
/* Queue it (one collective, or `count` sends and receives at once) on the first of the streams, of
 * which there may be several: after what they all have, and they all wait for it. `mark` may be
 * NULL; else it is a point after the work, for a request. */
enum tutti_result tti_gpu_call(struct tutti_comm *comm, const struct tti_operation *ops,
                               size_t count, const tutti_stream *streams, size_t stream_count,
                               struct tti_gpu_mark **mark);
/* Hear what the device and the others have to say: a failure becomes the communicator's. */
void tti_gpu_hear(struct tutti_comm *comm);
/* What the device has to say, for any thread: nothing while another is in a call, which hears it.
 * turn: by who runs operations, without whom nobody listens for a better reason. */
void tti_gpu_ask(struct tutti_comm *comm, bool turn);
/* All that was queued is over, and was sound; false also if somebody is in a call, or if work was
 * captured, of which nobody knows when it runs. */
bool tti_gpu_is_idle(struct tutti_comm *comm);
/* The same where nobody launches what was captured any more, and all launches are over. */
bool tti_gpu_is_over(struct tutti_comm *comm);
/* A device that has failed fails the communicator. For the progress thread; where another thread
 * watches the device (gpu_watch.c) that one does it. */
void tti_gpu_look_device(struct tutti_comm *comm);
/* By who runs operations, before what the device has made goes to other hosts: is all well that was
 * queued before? Else the communicator fails: what a rank that gave up has let through is
 * worthless, and must not be taken for a result anywhere. */
enum tutti_result tti_gpu_sound(struct tutti_comm *comm);
/* Do all ranks reach each other's device memory; with `running`, by kernels that run at the same
 * time? Not before the ranks have set that up together. */
bool tti_gpu_reaches(struct tutti_comm *comm, bool running);
/* After a deadline: has rank `peer` sent messages of device memory that lie here and that no
 * receive in device memory has met? One on host memory never does. */
bool tti_gpu_unmet(struct tutti_comm *comm, int peer);
/* Before an operation on host memory: the links are free again of work from streams. */
enum tutti_result tti_gpu_before_host(struct tutti_comm *comm);

/* Requests: as tutti_test and tutti_wait, which releases the mark. */
enum tutti_result tti_gpu_mark_test(struct tutti_comm *comm, struct tti_gpu_mark *mark);
enum tutti_result tti_gpu_mark_wait(struct tutti_comm *comm, struct tti_gpu_mark *mark);
/* One more mark at the point of the last call. */
enum tutti_result tti_gpu_mark_make(struct tutti_comm *comm, tutti_stream stream,
                                    struct tti_gpu_mark **mark);

#endif
