/* Bootstrap: how the ranks of a communicator find each other, before there is any transport, and
 * how they learn that one of them died, ever after.
 *
 * Rank 0 runs a server thread; every rank (rank 0 too) holds one TCP connection to it for the life
 * of the communicator. The server gathers blobs and relays notices: a connection that closes
 * without a goodbye is a death, told to all.
 *
 * Calls that create, gather and destroy come from one thread at a time; the others from any. */
#ifndef TTI_LAUNCH_BOOT_H
#define TTI_LAUNCH_BOOT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TTI_SECRET_BYTES = 32 };

/* Where the ranks meet: an address, a port range (rank 0 takes the first free one; the others try
 * each until one answers with the right job) and the secret of the job. */
struct tti_meeting {
    char host[160]; /* name or address (IPv6 without brackets) */
    uint16_t port;
    uint16_t ports; /* how many consecutive ports, >= 1 */
    uint8_t secret[TTI_SECRET_BYTES];
    int listen_fd; /* rank 0: a socket already listening on `port` (taken over), or -1 */
    uint16_t desk; /* where `host` tells who asks where rank 0 is (launch/desk.h); 0: nowhere */
    bool away;     /* rank 0: this is not `host` */
};

struct tti_boot;

/* While *flag is set, what the calling thread waits for in tti_boot_create and the gathers ends
 * with ABORTED, soon; the goodbye is said all the same. NULL: nothing of the kind. Returns the flag
 * that held until now. */
const _Atomic bool *tti_boot_cancel_by(const _Atomic bool *flag);
/* The same while `vain` says so, which is asked now and then: who waits for somebody that it knows
 * of by other means may know that he will not come. NULL: nothing of the kind. Returns what held
 * until now. */
struct tti_boot_vain {
    bool (*vain)(void *context);
    void *context;
};
const struct tti_boot_vain *tti_boot_cancel_when(const struct tti_boot_vain *vain);

/* Join: rank 0 starts the server, everyone connects and waits until all `size` ranks are there.
 * Takes meeting->listen_fd, also if it fails.
 * Errors: TIMEOUT ("ranks 2, 5 of 8 have not joined within 60 s at host:port"; on every rank),
 * LINK (nobody listens; what to check), SYSTEM (port taken, by name), MISMATCH (sizes differ, a
 * rank twice), ARGUMENT. */
enum tutti_result tti_boot_create(const struct tti_meeting *meeting, int rank, int size,
                                  uint64_t deadline, struct tti_boot **boot);

/* Collective: all[k * bytes .. ] = rank k's `mine`. bytes <= 1 MiB, equal on all ranks. After an
 * error the contents of `all` are undefined and the object is failed. Errors: TIMEOUT (names the
 * ranks that did not come), PEER (died, or left before), MISMATCH, what a rank gave to notify. */
enum tutti_result tti_boot_all_gather(struct tti_boot *boot, const void *mine, size_t bytes,
                                      void *all, uint64_t deadline);

/* A descriptor that polls readable when tti_boot_poll has something to say; -1 for one rank. The
 * number stays the same for life. */
int tti_boot_fd(const struct tti_boot *boot);

/* The address of this host that other ranks reach it by, as far as rank 0 does: that of the own end
 * of the connection to it. Who reached rank 0 by loopback is on its host, which the others reach by
 * `host`, the meeting's name or address of it. Loopback for one rank. */
enum tutti_result tti_boot_address(const struct tti_boot *boot, const char *host, char *text,
                                   size_t room);

/* Never blocks. TUTTI_OK while all is well. Else the first notice: TUTTI_ERR_PEER (*rank died), or
 * the code and text that *rank gave to tti_boot_notify (-1: a verdict on all). The same notice is
 * given again on later calls. A goodbye is no failure (a rank may be done earlier than others): see
 * has_left. */
enum tutti_result tti_boot_poll(struct tti_boot *boot, int *rank);

/* True when `rank` has said goodbye, as far as tti_boot_poll has heard. Who still waits for it,
 * waits in vain. Once rank 0 has left, deaths are no longer told. */
bool tti_boot_has_left(struct tti_boot *boot, int rank);

/* True when `rank` is known to have died: the server told so, or, for rank 0, is gone itself. Later
 * deaths are told after the first, too, while rank 0 lives. Never blocks. */
bool tti_boot_is_dead(struct tti_boot *boot, int rank);

/* Tell all other ranks that this one has failed, with its code and text (cut at 900 bytes). Bounded
 * and callable from any thread; only the first call of a rank has an effect. */
void tti_boot_notify(struct tti_boot *boot, enum tutti_result code, const char *text);

/* ---- what are the ranks doing? ---- */

enum { TTI_BOOT_REPORT_BYTES = 4096 };

enum tti_boot_presence {
    TTI_BOOT_SILENT, /* was asked, and has not answered in time */
    TTI_BOOT_LEFT,   /* had said goodbye */
    TTI_BOOT_REPORTED,
};

struct tti_boot_report {
    enum tti_boot_presence presence;
    const void *message; /* what its `report` wrote */
    size_t bytes;
};

/* What a rank has to say when one of them asks what all are doing, and what rank 0 makes of that.
 * All are called in threads of the bootstrap: whatever the rank's own threads do, they answer. */
struct tti_boot_watch {
    void *context;
    /* Write what this rank is doing: at most `room` bytes; returns how many. */
    size_t (*report)(void *context, void *message, size_t room);
    /* Rank 0's: the verdict of the reports, by rank. `code` and `text` are those of the rank that
     * asked. The code for all; `verdict` is what they are told. OK, which only a question with that
     * code may be answered with: all is well, and nobody is told anything. */
    enum tutti_result (*merge)(void *context, const struct tti_boot_report *reports, int size,
                               int asker, enum tutti_result code, const char *text, char *verdict,
                               size_t room);
    /* There is something that tti_boot_poll will say. */
    void (*failed)(void *context);
};

/* Start a thread that hears what the server has to say, and answers it, while the rank is somewhere
 * else. Nothing for one rank. */
enum tutti_result tti_boot_watch_start(struct tti_boot *boot, const struct tti_boot_watch *watch);

/* Something is wrong here, or (`code` OK) may be: have all ranks asked what they are doing. The
 * verdict comes to all as a failure (tti_boot_poll, rank -1), or never if rank 0 is what is wrong;
 * TTI_BOOT_VERDICT_S is long enough for it. Bounded. Only the first of all ranks' questions counts,
 * an OK one until another comes.
 */
void tti_boot_ask(struct tti_boot *boot, enum tutti_result code, const char *text);
/* When this rank was last asked, as tti_now_ns; 0: never. Whoever asks is asked too, at once: who
 * hears nothing for TTI_BOOT_ANSWER_S asks a server that does not run or cannot be reached. */
uint64_t tti_boot_asked(struct tti_boot *boot);
#define TTI_BOOT_ANSWER_S 1.0
#define TTI_BOOT_VERDICT_S 1.5

/* Names for the ranks, used in death notices ("rank 3 (node2:4711)"): `names` has `size` entries
 * and must outlive the object. */
void tti_boot_names(struct tti_boot *boot, const char *const *names);

/* Add what it holds: at rank 0 the server too, as it is while all ranks are there. */
void tti_boot_memory(const struct tti_boot *boot, struct tutti_memory *memory);

/* Say goodbye and leave. The server (rank 0) stays until all have left or died, at most
 * `linger_s` seconds. NULL is allowed. */
void tti_boot_destroy(struct tti_boot *boot, double linger_s);

#endif
