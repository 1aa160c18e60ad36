/* Calls on device memory for tests that keep their data on the host: each call copies the buffers
 * to a device, runs on a stream, and copies them back. The device is TUTTI_DEVICE's, number rank
 * modulo those there are. One rank a thread. */
#ifndef TTI_TESTS_DEVICE_CALLS_H
#define TTI_TESTS_DEVICE_CALLS_H

#include "coll/operation.h"
#include "device/gpu.h"
#include "tests/integration/ranks.h"

struct test_case {
    enum tutti_collective collective;
    enum tutti_type type;
    enum tutti_op op;
    size_t count;
    int root;
    bool in_place;
    size_t shift;
};

/* The same as an operation on these buffers. */
struct tti_operation test_operation(const struct test_case *c, const void *in, void *out);

/* A buffer with what is around it, and where in it the call's data begin. base NULL: there is
 * none. In place, both buffers have one base. */
struct device_shadow {
    char *base, *data;
    size_t bytes;
};

int device_begin(int rank);
int device_end(tutti_comm *comm);
struct tti_gpu *device_gpu(void);
tutti_stream device_stream(void);
/* On it; NULL: there is none. What is freed may be kept for the next who wants as much; freed now,
 * it is the device's again: when no rank of the process waits for another on its stream. Copies are
 * queued; of pageable memory when the stream has come that far, since the driver would wait for it
 * inside, and might keep out the rank that the stream waits for; settle waits for the stream, for a
 * minute or as long as `patience` says, and ends the process with a word on stderr if something is
 * queued even then: nothing may be freed under it. */
void *device_memory(size_t bytes);
void device_free(void *memory);
void device_free_now(void *memory);
enum tutti_result device_copy(void *to, const void *from, size_t bytes);
enum tutti_result device_settle(void);
void device_patience(double seconds);

/* The operation of the case on the stream, without waiting. */
enum tutti_result device_start(const struct test_case *c, const void *in, void *out,
                               tutti_comm *comm, tutti_request **request);
enum tutti_result device_call(const struct test_case *c, struct device_shadow in,
                              struct device_shadow out, tutti_comm *comm);

/* `function` on ranks whose TUTTI_DEVICE_PATH is `path`, and a line that says how it went. Returns
 * whether it failed. */
int device_ranks(const char *name, const char *path, struct tti_ranks how,
                 tti_rank_function *function, void *argument);

#endif
