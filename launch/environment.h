/* Rank, size and meeting point from the launcher's environment, and from ids. */
#ifndef TTI_LAUNCH_ENVIRONMENT_H
#define TTI_LAUNCH_ENVIRONMENT_H

#include "launch/boot.h"

struct tti_place {
    char launcher[24]; /* "tuttirun", "torchrun", "slurm", "openmpi", "mpich", "pmix", "none" */
    int rank;
    int size;
    int local_rank; /* -1 where the launcher does not tell */
    int local_size;
    struct tti_meeting meeting;
};

/* Which launcher started this process, and where to meet. May talk to the launcher (PMI-1 over
 * PMI_FD, PMIx) until `deadline` to learn rank 0's address. Without any launcher: rank 0 of 1.
 * Errors: USAGE, naming the variables that are missing, malformed or contradict each other;
 * UNSUPPORTED; SYSTEM. */
enum tutti_result tti_place_find(uint64_t deadline, struct tti_place *place);

/* True when some launcher's variables are set (whether or not they are consistent). */
bool tti_place_is_launched(void);

/* Ids: text form "tutti1:<secret in hex>:<port>:<host>", or "<port>,<desk>" (launch/desk.h). `make`
 * holds the port in this process until tti_meeting_from_id is called here with rank 0. anywhere:
 * rank 0 may be on another host, too; else it is the caller. */
enum tutti_result tti_id_make(const char *address, bool anywhere, struct tutti_id *id);
enum tutti_result tti_meeting_from_id(const struct tutti_id *id, int rank,
                                      struct tti_meeting *meeting);
/* An id that will not be used: its maker closes what it holds for it; others do nothing. */
void tti_id_forget(const struct tutti_id *id);

#endif
