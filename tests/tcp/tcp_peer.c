/* tutti-tcp-peer RANK RANKS FOLDER BYTES: one rank of the TCP transport alone, for tests between
 * network namespaces, which share the file system. Ranks exchange addresses through files in FOLDER
 * ("address.RANK"), connect to all others, send BYTES to each and check what they get, asleep when
 * there is nothing to do. While there is a file FOLDER/slowly, the second half goes a few bytes at
 * a time, so that the transfer is under way for as long as somebody wants. Exit status 0 when all
 * came as it was sent; errors on stderr. */
#include "base/clock.h"
#include "base/log.h"
#include "transport/registry.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct tutti_transport_ops tti_tcp_ops;

enum { PEER_MOST = 8, PEER_LANES = 2, PEER_BLOCK = 1 << 20, PEER_SECONDS = 100, PEER_SLOW = 64 };

struct peer_run {
    int rank, ranks;
    const char *folder;
    size_t bytes;
    uint64_t deadline;
    bool slow;              /* FOLDER/slowly was there when last looked for */
    uint64_t look, go_slow; /* when to look again, and to send the next few bytes */
    void *transport;
    void *endpoint[PEER_MOST];
    struct tutti_peer peer[PEER_MOST];
    char name[PEER_MOST][24];
    uint8_t address[PEER_MOST][TUTTI_ADDRESS_BYTES];
    size_t sent[PEER_MOST][PEER_LANES], taken[PEER_MOST][PEER_LANES];
    uint8_t block[PEER_BLOCK]; /* what everybody sends, again and again */
};

static int peer_fail(const struct peer_run *run, const char *what, const char *why)
{
    fprintf(stderr, "rank %d: %s: %s\n", run->rank, what, why);
    return -1;
}

/* ---- addresses ------------------------------------------------------------------------------ */

static int peer_publish(struct peer_run *run)
{
    char path[512], part[512];
    uint8_t address[TUTTI_ADDRESS_BYTES];
    size_t bytes = 0;
    if (tti_tcp_ops.address(run->transport, address, &bytes) != TUTTI_OK)
        return peer_fail(run, "address", tutti_last_error());
    snprintf(path, sizeof path, "%s/address.%d", run->folder, run->rank);
    snprintf(part, sizeof part, "%s/part.%d", run->folder, run->rank);
    FILE *file = fopen(part, "wb");
    bool written = file && fwrite(address, 1, bytes, file) == bytes;
    if ((file && fclose(file) != 0) || !written || rename(part, path) != 0)
        return peer_fail(run, "address", "cannot write it");
    return 0;
}

static int peer_look_up(struct peer_run *run, int rank)
{
    char path[512];
    snprintf(path, sizeof path, "%s/address.%d", run->folder, rank);
    FILE *file = NULL;
    while (!(file = fopen(path, "rb"))) {
        if (tti_deadline_passed(run->deadline))
            return peer_fail(run, path, "does not come");
        poll(NULL, 0, 10);
    }
    size_t bytes = fread(run->address[rank], 1, TUTTI_ADDRESS_BYTES, file);
    fclose(file);
    snprintf(run->name[rank], sizeof run->name[rank], "rank%d:0", rank);
    run->peer[rank] = (struct tutti_peer){.rank = rank,
                                          .name = run->name[rank],
                                          .host = (uint64_t)rank,
                                          .process = (uint64_t)rank,
                                          .address = run->address[rank],
                                          .address_bytes = bytes};
    if (rank != run->rank && !tti_tcp_ops.reaches(run->transport, &run->peer[rank]))
        return peer_fail(run, run->name[rank], "is not within reach");
    return 0;
}

/* ---- connecting and traffic ------------------------------------------------------------------ */

static void peer_sleep(struct peer_run *run)
{
    if (tti_tcp_ops.arm(run->transport)) {
        struct pollfd wake = {.fd = tti_tcp_ops.fd(run->transport), .events = POLLIN};
        poll(&wake, 1, run->slow ? 2 : 1000);
    }
    tti_tcp_ops.disarm(run->transport);
}

static int peer_connect(struct peer_run *run)
{
    for (int i = 0; i < run->ranks; i++)
        if (i != run->rank && tti_tcp_ops.connect(run->transport, &run->peer[i], PEER_LANES,
                                                  &run->endpoint[i]) != TUTTI_OK)
            return peer_fail(run, "connect", tutti_last_error());
    for (int i = 0; i < run->ranks; i++) {
        enum tutti_result result = TUTTI_IN_PROGRESS;
        while (i != run->rank &&
               (result = tti_tcp_ops.advance(run->endpoint[i])) == TUTTI_IN_PROGRESS) {
            if (tti_deadline_passed(run->deadline))
                return peer_fail(run, "advance", "not connected in time");
            peer_sleep(run);
        }
        if (i != run->rank && result != TUTTI_OK)
            return peer_fail(run, "advance", tutti_last_error());
    }
    return 0;
}

static void peer_look_whether_slow(struct peer_run *run)
{
    char path[512];
    if (!tti_deadline_passed(run->look))
        return;
    snprintf(path, sizeof path, "%s/slowly", run->folder);
    run->slow = access(path, F_OK) == 0;
    run->look = tti_deadline_in(0.01);
}

/* Returns 1 when something moved, 0 when not, -1 on an error. */
static int peer_send(struct peer_run *run, int to, int lane)
{
    size_t *sent = &run->sent[to][lane], accepted = 0;
    size_t at = *sent % PEER_BLOCK, piece = PEER_BLOCK - at;
    if (*sent == run->bytes)
        return 0;
    if (piece > run->bytes - *sent)
        piece = run->bytes - *sent;
    if (lane == 1 && piece > 1000) /* small fragments on one lane, large ones on the other */
        piece = 1000;
    if (run->slow && *sent >= run->bytes / 2) {
        if (!tti_deadline_passed(run->go_slow))
            return 0;
        run->go_slow = tti_deadline_in(0.001);
        piece = piece < PEER_SLOW ? piece : PEER_SLOW;
    }
    if (tti_tcp_ops.send(run->endpoint[to], lane, 5, run->block + at, piece, &accepted) != TUTTI_OK)
        return peer_fail(run, "send", tutti_last_error());
    *sent += accepted;
    return accepted > 0;
}

static int peer_take(struct peer_run *run, int from, int lane)
{
    size_t *taken = &run->taken[from][lane], bytes = 0;
    uint64_t tag = 0;
    const void *data = NULL;
    if (*taken == run->bytes)
        return 0;
    if (tti_tcp_ops.peek(run->endpoint[from], lane, &tag, &data, &bytes) != TUTTI_OK)
        return peer_fail(run, "peek", tutti_last_error());
    if (bytes == 0)
        return 0;
    size_t at = *taken % PEER_BLOCK;
    size_t first = bytes < PEER_BLOCK - at ? bytes : PEER_BLOCK - at;
    if (tag != 5 || bytes > run->bytes - *taken || memcmp(data, run->block + at, first) != 0)
        return peer_fail(run, "peek", "wrong bytes");
    tti_tcp_ops.consume(run->endpoint[from], lane, first);
    *taken += first;
    return 1;
}

static int peer_exchange(struct peer_run *run)
{
    for (bool done = false; !done;) {
        int moved = 0;
        done = true;
        peer_look_whether_slow(run);
        if (tti_tcp_ops.progress(run->transport) != TUTTI_OK)
            return peer_fail(run, "progress", tutti_last_error());
        for (int i = 0; i < run->ranks * PEER_LANES; i++) {
            int peer = i / PEER_LANES, lane = i % PEER_LANES;
            if (peer == run->rank)
                continue;
            int sent = peer_send(run, peer, lane), taken = peer_take(run, peer, lane);
            if (sent < 0 || taken < 0)
                return -1;
            moved += sent + taken;
            done = done && run->sent[peer][lane] == run->bytes &&
                   run->taken[peer][lane] == run->bytes &&
                   tti_tcp_ops.released(run->endpoint[peer], lane) == run->bytes;
        }
        if (tti_deadline_passed(run->deadline))
            return peer_fail(run, "exchange", "not done in time");
        if (!moved && !done)
            peer_sleep(run);
    }
    return 0;
}

static int peer_run(struct peer_run *run)
{
    uint8_t secret[TUTTI_SECRET_BYTES] = "a secret of this test";
    struct tutti_transport_env env = {.size = sizeof env,
                                      .services = tti_transport_services(),
                                      .job = 1,
                                      .secret = secret,
                                      .rank = run->rank,
                                      .nranks = run->ranks,
                                      .name = "me:0",
                                      .lanes = PEER_LANES};
    tti_log_rank(run->rank);
    for (size_t i = 0; i < PEER_BLOCK; i++)
        run->block[i] = (uint8_t)((i * 2654435761u) >> 11);
    if (tti_tcp_ops.probe(env.services) != TUTTI_OK ||
        tti_tcp_ops.open(&env, &run->transport) != TUTTI_OK)
        return peer_fail(run, "open", tutti_last_error());
    peer_look_whether_slow(run);
    int status = peer_publish(run);
    for (int i = 0; i < run->ranks && status == 0; i++)
        status = peer_look_up(run, i);
    if (status == 0)
        status = peer_connect(run);
    if (status == 0)
        status = peer_exchange(run);
    tti_tcp_ops.close(run->transport);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 5 || atoi(argv[2]) > PEER_MOST) {
        fprintf(stderr, "usage: tutti-tcp-peer RANK RANKS FOLDER BYTES\n");
        return 2;
    }
    struct peer_run *run = calloc(1, sizeof *run);
    if (!run)
        return 1;
    run->rank = atoi(argv[1]);
    run->ranks = atoi(argv[2]);
    run->folder = argv[3];
    run->bytes = strtoull(argv[4], NULL, 10);
    run->deadline = tti_deadline_in(PEER_SECONDS);
    int status = peer_run(run);
    if (status == 0)
        printf("rank %d: all right\n", run->rank);
    free(run);
    return status != 0;
}
