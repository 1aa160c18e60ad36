/* The desk: where the ranks of an id ask for rank 0 when it is not where the id says.
 *
 * An id names a port of its maker's host, and rank 0 listens there if it can: in the maker's
 * process, which holds the port, or in another one of the host. On another host it cannot. So the
 * id names a second port, at which the maker has listened from the beginning: rank 0 tells there
 * where it has begun to listen, and the ranks that found nobody wait there to be told. Both prove
 * that they know the id's secret (boot_wire.h has the frames); the desk proves it first.
 *
 * What rank 0 told holds while its connection is open, which it is until all have met, or it has
 * failed: so another rank 0 is refused meanwhile, and the id can be used again afterwards.
 *
 * One thread serves all ids of a process that nobody has claimed. It ends with the last of them: an
 * id goes when rank 0 claims it in this process, when it is given up, or when nobody has used it
 * again, after a meeting, for as long as the most patient rank 0 so far had in all. Until then the
 * maker must live, as with NCCL. */
#ifndef TTI_LAUNCH_DESK_H
#define TTI_LAUNCH_DESK_H

#include "launch/boot_prove.h"

/* ---- the maker (desk.c) ---- */

/* Keep the id's secret, and its port held by `held_fd` (taken on success), until rank 0 claims it.
 * anywhere: let ranks of other hosts ask, too; meeting->desk is where, 0 if nobody else can come
 * (loopback, or there was no thread or descriptor for it: in the log). MEMORY. */
enum tutti_result tti_desk_add(struct tti_meeting *meeting, int held_fd, bool anywhere);
/* Rank 0 is in this process: *fd is the held socket, which listens now; untouched if the id was not
 * made here, or was claimed. *alone: it was made by this very process, not by the one that forked
 * it, so that nobody else has to be told. SYSTEM: another process listens on the port. */
enum tutti_result tti_desk_claim(const uint8_t secret[static TTI_SECRET_BYTES], int *fd,
                                 bool *alone);

/* The id will not be used: what is held for it is closed, if it was made here. */
void tti_desk_forget(const uint8_t secret[static TTI_SECRET_BYTES]);

/* ---- the ranks (desk_visit.c) ---- */

/* What a desk says of its host: the identity (base/host.h), folded. */
uint32_t tti_desk_host(void);

struct tti_desk_found {
    bool refused; /* nobody listens there */
    bool here;    /* it is on this host, whatever address the id has of it */
};

/* A connection to the desk of `meeting`, with both proofs. */
enum tutti_result tti_desk_visit(const struct tti_meeting *meeting,
                                 const struct tti_boot_caller *caller, uint64_t until, int *fd,
                                 struct tti_desk_found *found);
/* Read where rank 0 is into host and port of *place. LINK: the desk has closed. SYSTEM: it
 * has no room for one more to wait. */
enum tutti_result tti_desk_hear(int fd, struct tti_meeting *place, uint64_t until);
/* Rank 0, on another host than the id's as far as addresses tell: find the desk, and set host and
 * port of *at to the own address and any port (0). *at stays as it was if the desk is on this host,
 * which is only known by another address than it has (translation), or if nobody is at the desk,
 * when that may be so: then *fd is -1. */
enum tutti_result tti_desk_arrive(const struct tti_boot_caller *caller, struct tti_meeting *at,
                                  int *fd);
/* Rank 0 listens: say where, over a visit's connection. It holds until the caller closes that. */
enum tutti_result tti_desk_tell(const struct tti_boot_caller *caller, int fd, const char *host,
                                uint16_t port);

#endif
