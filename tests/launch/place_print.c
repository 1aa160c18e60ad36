/* Started by any launcher: finds its place, meets the others, and prints one line
 *     rank 1 of 3 launcher mpich local 1 of 3 ok
 * `--twice` meets a second time, for programs that make two communicators; `--held` tells whether
 * the ports are nobody else's when no rank listens there, and MASTER_PORT is the program's. */
#include "base/clock.h"
#include "launch/environment.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int place_fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tutti_last_error());
    return 1;
}

static int place_meet(void)
{
    struct tti_place place;
    struct tti_boot *boot = NULL;
    int all[64];
    if (tti_place_find(tti_deadline_in(100), &place) != TUTTI_OK)
        return place_fail("place");
    if (tti_boot_create(&place.meeting, place.rank, place.size, tti_deadline_in(100), &boot) !=
        TUTTI_OK)
        return place_fail("boot");
    int mine = 100 + place.rank;
    enum tutti_result result =
        tti_boot_all_gather(boot, &mine, sizeof mine, all, tti_deadline_in(100));
    tti_boot_destroy(boot, 5);
    if (result != TUTTI_OK)
        return place_fail("gather");
    for (int k = 0; k < place.size; k++)
        if (all[k] != 100 + k)
            return place_fail("wrong data");
    printf("rank %d of %d launcher %s local %d of %d ok\n", place.rank, place.size, place.launcher,
           place.local_rank, place.local_size);
    return 0;
}

static int place_number(const char *variable)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : -1;
}

static bool place_taken(int port, bool shares)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int other = socket(AF_INET, SOCK_STREAM, 0), yes = shares;
    (void)setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const bool taken = bind(other, (const struct sockaddr *)&address, sizeof address) != 0 ||
                       listen(other, 1) != 0;
    if (taken && errno != EADDRINUSE)
        perror("place: bind");
    close(other);
    return taken;
}

static void place_await_silence(int port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (bool heard = true; heard; (void)poll(NULL, 0, 5)) {
        const int caller = socket(AF_INET, SOCK_STREAM, 0);
        heard = connect(caller, (const struct sockaddr *)&address, sizeof address) == 0;
        close(caller);
    }
}

/* Rank 0 under tuttirun gives up the socket that was left for it; when tuttirun has closed its own,
 * too, who does not share the port finds it taken. MASTER_PORT is so from the start, and the
 * program itself may listen there. */
static int place_held(void)
{
    const int port = place_number("MASTER_PORT");
    const char *meeting = strchr(getenv("TUTTI_MEETING"), ':');
    if (place_taken(port, true))
        return puts("the program cannot listen on MASTER_PORT"), 1;
    close(place_number("TUTTI_LISTEN_FD"));
    place_await_silence(atoi(meeting + 1));
    const bool held = place_taken(port, false) && place_taken(atoi(meeting + 1), false);
    puts(held ? "both ports are held" : "a port is anybody's");
    return !held;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--held") == 0)
        return place_held();
    int failed = place_meet();
    if (!failed && argc > 1 && strcmp(argv[1], "--twice") == 0)
        failed = place_meet();
    return failed;
}
