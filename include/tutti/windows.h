/* Windows: writing into another rank's memory, alone. Part of tutti/tutti.h, which brings it, and
 * whose rules hold here.
 *
 * A rank puts data into a window of another one, without a call there, and tells it by a signal.
 * Between two ranks puts and signals take effect in the order of the calls: when a signal has been
 * waited for, everything that its sender had put there before is in place. Between different
 * senders there is no order. They are operations like those of tutti.h: on host memory or device
 * memory, blocking or with a stream or request, collected in groups (and run there in the order of
 * the calls). */
#ifndef TUTTI_WINDOWS_H
#define TUTTI_WINDOWS_H

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_window tutti_window;

enum {
    TUTTI_NO_SIGNAL = -1,
    TUTTI_SIGNALS = 64, /* numbers 0 .. 63, counted for each pair of ranks */
};

/* Let all ranks put into [memory, memory + bytes), host or device memory of the caller's;
 * collective (not inside a group). Sizes may differ; `bytes` may be 0. The memory stays where it
 * is, the caller's, and valid until tutti_window_destroy; from tutti_alloc or registered, ranks of
 * this host store into it themselves. The first window makes a hidden second communicator, with a
 * connection between any two ranks and, on each, a thread that stays: it applies what others put
 * by message. Errors: as those of collectives; SYSTEM (no thread, no sockets). */
TUTTI_API enum tutti_result tutti_window_create(void *memory, size_t bytes, tutti_comm *comm,
                                                tutti_window **window);
/* Local. The caller has made sure (by signals or a barrier) that nobody puts into its part any
 * more: later puts fail the communicator or, of ranks of this host, write to memory that is the
 * caller's alone again (of another process: to pages that nobody has any more, once it is freed).
 * Windows that are left end with their communicator. NULL is allowed. */
TUTTI_API void tutti_window_destroy(tutti_window *window);

/* Copy `count` elements to `offset` bytes from the beginning of the window's memory at rank `peer`
 * (the own one is allowed), and then count signal number `signal` of this rank there
 * (TUTTI_NO_SIGNAL: none). Over when `in` may be changed again; the data may be under way still.
 * Never waits for a call of the peer. Errors: ARGUMENT (also: beyond the window's end at the peer);
 * PEER, LINK, TIMEOUT name the peer. */
TUTTI_API enum tutti_result tutti_put(const void *in, size_t count, enum tutti_type type, int peer,
                                      tutti_window *window, size_t offset, int signal);
TUTTI_API enum tutti_result tutti_put_async(const void *in, size_t count, enum tutti_type type,
                                            int peer, tutti_window *window, size_t offset,
                                            int signal, tutti_stream stream,
                                            tutti_request **request);
/* Count signal number `signal` of this rank at `peer`. Errors: as put; USAGE: the communicator has
 * had no window yet. */
TUTTI_API enum tutti_result tutti_signal(int peer, int signal, tutti_comm *comm);
TUTTI_API enum tutti_result tutti_signal_async(int peer, int signal, tutti_comm *comm,
                                               tutti_stream stream, tutti_request **request);
/* Wait until `count` signals of this number have come from `peer`, beyond those that were waited
 * for before. Operations of the communicator that were called later wait meanwhile. Errors: as
 * signal; TIMEOUT says how many have come. */
TUTTI_API enum tutti_result tutti_wait_signal(int peer, int signal, uint64_t count,
                                              tutti_comm *comm);
TUTTI_API enum tutti_result tutti_wait_signal_async(int peer, int signal, uint64_t count,
                                                    tutti_comm *comm, tutti_stream stream,
                                                    tutti_request **request);

#ifdef __cplusplus
}
#endif
#endif
