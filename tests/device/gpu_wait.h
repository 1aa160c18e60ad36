/* Waiting for a stream of a test. */
#ifndef TUTTI_TESTS_GPU_WAIT_H
#define TUTTI_TESTS_GPU_WAIT_H

#include "base/clock.h"
#include "device/gpu.h"
#include "tutti/tutti.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Tests free their buffers whatever comes of a call. A simulated device unmaps them at once, and
 * the host's are gone on any: a kernel or a copy that is still under way would crash somewhere, or
 * write into the next test's, and nobody would read of the deadline. So the process ends, with a
 * word on stderr, where something is queued even then. Other failures leave a stream at rest. */
static inline enum tutti_result gpu_wait_or_end(struct tti_gpu *gpu, tutti_stream stream,
                                                double seconds, const char *what)
{
    const enum tutti_result result =
        tti_gpu_stream_wait(gpu, stream, tti_deadline_in(seconds), what);
    if (result != TUTTI_ERR_TIMEOUT || gpu->ops->stream_query(gpu, stream) != TUTTI_IN_PROGRESS)
        return result;
    fprintf(stderr,
            "%s\nthe process ends here: what is queued still uses the test's buffers (has the "
            "machine stood still for %g s?)\n",
            tutti_last_error(), seconds);
    fflush(NULL);
    _exit(EXIT_FAILURE);
}

#endif
