/* The post of a communicator: what one rank alone does to another (coll/window.h), and who does it
 * while that other is not in a call.
 *
 * Each rank has a thread of its own for it, on a hidden communicator of the same ranks that nothing
 * else uses: its links are all up from the start, and their lanes carry nothing but heads (what is
 * to be done) and data. The thread never waits for anybody: it sends what can be sent, stores what
 * has come, counts signals. So a put ends whatever its target does, no order of puts can block
 * another, and neither meets the messages of collectives. Between two ranks everything is done in
 * the order of the calls, a signal after the data of the puts before it.
 *
 * Ranks of a host need the thread only for memory that they cannot map: else who puts stores the
 * bytes itself (window.c), and counts the signal itself (board.h) once all that it has given to the
 * thread before is applied.
 *
 * Read window.c for the calls, post.c for the thread. */
#ifndef TTI_COLL_POST_H
#define TTI_COLL_POST_H

#include "coll/operation.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tti_board;
struct tti_gpu_ops;
struct tti_post;
struct tti_region_place;
struct tutti_comm;
struct tutti_window;

/* What is to be done at the target: the bytes that follow go to the window, then the signal is
 * counted. Crosses the wire as it is, as tags do. */
struct tti_post_head {
    uint64_t window; /* its number; without bytes, 0 */
    uint64_t offset, bytes;
    int32_t signal; /* TUTTI_NO_SIGNAL: none */
    uint32_t magic;
    uint64_t unused[4];
};

/* `wire`: a communicator of the same ranks for this alone; NULL for one rank. `board`: this rank's.
 * Both become the post's. Connects to all ranks: collective. */
enum tutti_result tti_post_open(struct tutti_comm *comm, struct tutti_comm *wire,
                                struct tti_board *board, struct tti_post **post);
/* Where the board of another rank is: `own` in this process, of which the post becomes a holder, or
 * else at `place`. */
void tti_post_reach(struct tti_post *post, int rank, struct tti_board *own,
                    const struct tti_region_place *place);
/* Send what is still to be sent (for at most a second), end the thread. NULL is allowed. */
void tti_post_close(struct tti_post *post);
/* Add what it holds. In the communicator's turn. */
void tti_post_memory(struct tti_post *post, struct tutti_memory *memory);

/* Open the device that a window of this rank is on. */
enum tutti_result tti_post_device(struct tti_post *post, const struct tti_gpu_ops *ops, int device);
/* Windows that may be written to from here on, and not any more: when delist has returned, the
 * post does not touch the memory. */
void tti_post_enlist(struct tti_post *post, struct tutti_window *window);
void tti_post_delist(struct tti_post *post, struct tutti_window *window);

/* Have it done at `peer`, after all that was given for that rank before. Returns when `data` is the
 * caller's again. */
enum tutti_result tti_post_send(struct tti_post *post, int peer, const struct tti_post_head *head,
                                const void *data);
/* Is the peer there, as far as is known, for stores of this rank? */
enum tutti_result tti_post_check(struct tti_post *post, int peer);
/* The same where the caller itself has stored the bytes, at the own rank: count the signal. */
void tti_post_signal_self(struct tti_post *post, int signal);
/* Store into the own window, which may be device memory. */
enum tutti_result tti_post_store(struct tti_post *post, const struct tutti_window *window,
                                 size_t offset, const void *data, size_t bytes);
/* Wait until `count` more signals of this number have come from `peer` than were waited for before;
 * the communicator's turn is the caller's. */
enum tutti_result tti_post_wait(struct tti_post *post, int peer, int signal, uint64_t count);

#endif
