/* A rank's way in: find the server of its job on the meeting's addresses and ports, and shake
 * hands. */
#ifndef TTI_LAUNCH_BOOT_JOIN_H
#define TTI_LAUNCH_BOOT_JOIN_H

#include "launch/boot_prove.h"

#include <sys/socket.h>

struct tti_boot_join {
    const struct tti_meeting *meeting;
    const struct sockaddr *own; /* rank 0: its own server's address; others NULL */
    socklen_t own_bytes;
    struct tti_boot_caller caller;
};

/* A connection on which the server has said welcome. LINK when nobody did by the deadline, with
 * what was tried; or the failure of the job that the server told. */
enum tutti_result tti_boot_join(const struct tti_boot_join *join, int *fd);

#endif
