/* tutti-nuisance COUNT PROGRAM ARGS...: runs PROGRAM and meanwhile makes COUNT connections to the
 * ports that it and its descendants listen on: noise, half messages, hellos with a wrong proof, the
 * same hello again and again, sockets that are held open in silence, and such as close at once.
 * PROGRAM is run again when it ends before the last connection. Exit status 0 when it always ended
 * with 0. Ports are found in /proc, so the program is not told of any of this. Used by the test
 * `tcp_flood`. */
#include "base/clock.h"
#include "transport/tcp/tcp_wire.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NUISANCE_PORTS = 64, NUISANCE_HELD = 300, NUISANCE_LOOK_EVERY = 50, NUISANCE_KINDS = 6 };

struct nuisance {
    pid_t program;
    uint16_t port[NUISANCE_PORTS];
    int ports;
    int held[NUISANCE_HELD];
    unsigned holds, made;
    int runs, status;                   /* of the program; the last one's status */
    bool over;                          /* it has ended */
    uint8_t hello[TTI_TCP_HELLO_BYTES]; /* the one that is replayed */
};

/* ---- whose ports ----------------------------------------------------------------------------- */

static pid_t nuisance_parent(pid_t pid)
{
    char path[64], state = 0;
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    if (fscanf(file, "%*d (%*[^)]) %c %d", &state, &parent) != 2)
        parent = 0;
    fclose(file);
    return parent;
}

static bool nuisance_is_of(const struct nuisance *n, pid_t pid)
{
    for (int depth = 0; depth < 8 && pid > 1; depth++, pid = nuisance_parent(pid))
        if (pid == n->program)
            return true;
    return false;
}

/* Does the process have the socket with this inode open? */
static bool nuisance_has(pid_t pid, unsigned long inode)
{
    char path[300], wanted[64], link[64];
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    bool has = false;
    for (struct dirent *entry; folder && !has && (entry = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, entry->d_name);
        ssize_t bytes = readlink(path, link, sizeof link - 1);
        link[bytes > 0 ? bytes : 0] = '\0';
        has = strcmp(link, wanted) == 0;
    }
    if (folder)
        closedir(folder);
    return has;
}

static bool nuisance_owns(const struct nuisance *n, unsigned long inode)
{
    DIR *folder = opendir("/proc");
    bool owns = false;
    for (struct dirent *entry; folder && !owns && (entry = readdir(folder));) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        owns = pid > 1 && nuisance_is_of(n, pid) && nuisance_has(pid, inode);
    }
    if (folder)
        closedir(folder);
    return owns;
}

static void nuisance_look_in(struct nuisance *n, const char *path)
{
    char line[512];
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file) && n->ports < NUISANCE_PORTS) {
        unsigned port = 0, state = 0;
        unsigned long inode = 0;
        enum { LISTENS = 10 };
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %*d %*d %lu", &port, &state,
                   &inode) == 3 &&
            state == LISTENS && nuisance_owns(n, inode))
            n->port[n->ports++] = (uint16_t)port;
    }
    if (file)
        fclose(file);
}

static void nuisance_look(struct nuisance *n)
{
    n->ports = 0;
    nuisance_look_in(n, "/proc/net/tcp");
    nuisance_look_in(n, "/proc/net/tcp6");
    if (!n->over && waitpid(n->program, &n->status, WNOHANG) == n->program)
        n->over = true;
}

/* ---- the connections ------------------------------------------------------------------------- */

static size_t nuisance_text(struct nuisance *n, unsigned kind, uint8_t *bytes, size_t room)
{
    for (size_t i = 0; i < room; i++)
        bytes[i] = (uint8_t)rand();
    switch (kind) {
    case 0: /* noise */
        return room;
    case 1: /* a hello without a proof */
        tti_tcp_put_hello(&(struct tti_tcp_hello){.lanes = 1, .job = (uint64_t)rand(), .id = 1},
                          bytes);
        return TTI_TCP_HELLO_BYTES;
    case 2: /* the same hello as ever */
        memcpy(bytes, n->hello, sizeof n->hello);
        return sizeof n->hello;
    case 3: /* fragments, as if we were in */
        for (size_t at = 0; at + 64 <= room; at += 64)
            tti_tcp_put_header(42, 48, bytes + at);
        return room;
    case 4: /* half a hello */
        return TTI_TCP_HELLO_BYTES / 2;
    default: /* nothing */
        return 0;
    }
}

/* Some stay open, the oldest of them making way. */
static void nuisance_hold(struct nuisance *n, int socket)
{
    int *place = &n->held[n->holds++ % NUISANCE_HELD];
    if (*place >= 0)
        close(*place);
    *place = socket;
}

static void nuisance_connect(struct nuisance *n, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval patience = {0, 300000};
    struct linger reset = {1, 0};
    uint8_t bytes[1024];
    unsigned kind = (unsigned)rand() % NUISANCE_KINDS;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0)
        return;
    setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* of connect, too */
    if (connect(made, (struct sockaddr *)&to, sizeof to) != 0) {
        close(made);
        return;
    }
    n->made++;
    size_t count = nuisance_text(n, kind, bytes, sizeof bytes);
    (void)send(made, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (rand() % 4 == 0)
        setsockopt(made, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (kind >= 4)
        nuisance_hold(n, made);
    else
        close(made);
}

static void nuisance_start(struct nuisance *n, char **arguments)
{
    n->over = false;
    n->runs++;
    n->ports = 0;
    n->program = fork();
    if (n->program == 0) {
        execv(arguments[0], arguments);
        fprintf(stderr, "tutti-nuisance: %s: %s\n", arguments[0], strerror(errno));
        _exit(127);
    }
}

static void nuisance_run(struct nuisance *n, unsigned count, char **arguments)
{
    uint64_t deadline = tti_deadline_in(250);
    n->over = true;
    for (unsigned turn = 0; n->made < count && !tti_deadline_passed(deadline); turn++) {
        if (n->over && n->status != 0)
            return;
        if (n->over)
            nuisance_start(n, arguments);
        if (turn % NUISANCE_LOOK_EVERY == 0 || n->ports == 0)
            nuisance_look(n);
        if (n->ports == 0)
            usleep(1000);
        else
            nuisance_connect(n, n->port[turn % (unsigned)n->ports]);
    }
    if (!n->over && waitpid(n->program, &n->status, 0) != n->program)
        n->status = -1;
}

int main(int argc, char **argv)
{
    struct nuisance n = {.program = -1};
    unsigned count = argc > 2 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    if (count == 0) {
        fprintf(stderr, "usage: tutti-nuisance COUNT PROGRAM ARGS...\n");
        return 2;
    }
    srand(1);
    for (int i = 0; i < NUISANCE_HELD; i++)
        n.held[i] = -1;
    nuisance_text(&n, 1, n.hello, sizeof n.hello);
    nuisance_run(&n, count, argv + 2);
    for (int i = 0; i < NUISANCE_HELD; i++)
        if (n.held[i] >= 0)
            close(n.held[i]);
    printf("%u connections during %d runs; the last one ended with %d\n", n.made, n.runs, n.status);
    return n.status != 0 || n.made < count;
}
