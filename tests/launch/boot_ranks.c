/* A free port for a test (boot_ranks.h). */
#include "tests/launch/boot_ranks.h"

#include "launch/boot_socket.h"

#include <stdio.h>
#include <unistd.h>

struct tti_meeting boot_ranks_meeting(void)
{
    /* Below the ports that the kernel gives to connections; processes and calls start apart. */
    static _Atomic unsigned calls;
    unsigned first = 10000 + ((unsigned)getpid() * 64 + calls++ * 7) % 6800;
    struct tti_meeting meeting = {.host = "127.0.0.1", .ports = 1, .listen_fd = -1};
    int fd = -1;
    if (tti_socket_listen(meeting.host, (uint16_t)first, 100, &fd, &meeting.port) != TUTTI_OK)
        fprintf(stderr, "%s\n", tti_error_text());
    else
        close(fd);
    memset(meeting.secret, 0x5a, sizeof meeting.secret);
    return meeting;
}
