/* Free ports and words for the tests (boot_ranks.h). */
#include "tests/launch/boot_ranks.h"

#include "launch/boot_socket.h"
#include "tests/tutti_cmocka.h"

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
    /* Its own, so that the ranks of another test that runs beside are strangers. */
    snprintf((char *)meeting.secret, sizeof meeting.secret, "test %d.%u", (int)getpid(), first);
    return meeting;
}

void boot_expect_text(const char *text, const char *part)
{
    if (!strstr(text, part))
        print_error("\"%s\" does not contain \"%s\"\n", text, part);
    assert_non_null(strstr(text, part));
}
