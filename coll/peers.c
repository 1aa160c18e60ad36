/* Identities, hosts and transports of the ranks (coll/peers.h).
 *
 * Each rank contributes one fixed-size blob: who it is, and the address of each transport that it
 * opened. Everything that depends on all ranks (host numbers, local ranks) is then worked out from
 * the same bytes on every rank, so they agree. */
#include "coll/peers.h"

#include "base/config.h"
#include "base/host.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOB_TRANSPORTS = 6, BLOB_NAME = 80, BLOB_TRANSPORT_NAME = 24, BLOB_ADDRESS = 160 };

struct blob_transport {
    char name[BLOB_TRANSPORT_NAME];
    uint32_t bytes;
    uint8_t address[TUTTI_ADDRESS_BYTES];
};

/* All ranks run the same build (the bootstrap's version check), so the layout is shared. */
struct identity_blob {
    char name[BLOB_NAME];
    char address[BLOB_ADDRESS]; /* of its host, for a new meeting there */
    uint64_t host, process;
    int64_t pid;
    double line_bits; /* of the own way to other hosts; 0: not known */
    uint64_t way;     /* equal on ranks of a host that share it */
    uint64_t reads;   /* equal on ranks that read each other's memory; 0: it does not */
    uint32_t transports;
    struct blob_transport transport[BLOB_TRANSPORTS];
};

static void identity_fill(struct identity_blob *blob)
{
    char host[64] = "localhost", stat[64];
    gethostname(host, sizeof host - 1);
    snprintf(blob->name, sizeof blob->name, "%s:%d", host, (int)getpid());
    blob->pid = getpid();
    blob->host = tti_host_identity();
    /* The address of a variable tells processes apart that have equal pids in two pid namespaces,
     * together with the time in /proc/self/stat. */
    snprintf(stat, sizeof stat, "%d", (int)getpid());
    blob->process = tti_hash_bytes(blob->host, stat, strlen(stat));
    static const char marker;
    uintptr_t address = (uintptr_t)&marker;
    blob->process = tti_hash_bytes(blob->process, &address, sizeof address);
    char pidns[64];
    ssize_t bytes = readlink("/proc/self/ns/pid", pidns, sizeof pidns);
    if (bytes > 0)
        blob->process = tti_hash_bytes(blob->process, pidns, (size_t)bytes);
}

/* ---- opening ---- */

static enum tutti_result carriers_open(struct tti_peers *peers, const char *transports,
                                       const char *plugins, struct identity_blob *blob)
{
    const struct tutti_transport_ops *list[TTI_MAX_TRANSPORTS];
    int count = 0;
    TTI_TRY(tti_transport_select(transports, plugins, list, &count));
    for (int i = 0; i < count && blob->transports < BLOB_TRANSPORTS; i++) {
        struct tti_carrier *carrier = &peers->carriers[peers->ncarriers];
        struct blob_transport *entry = &blob->transport[blob->transports];
        size_t bytes = 0;
        enum tutti_result result = list[i]->open(&peers->env, &carrier->object);
        if (result != TUTTI_OK)
            return TTI_CONTEXT(result, "while opening transport %s", list[i]->name);
        carrier->ops = list[i];
        carrier->fd = list[i]->fd(carrier->object);
        peers->ncarriers++;
        if (blob->way == 0)
            blob->line_bits = tti_transport_line(list[i], carrier->object, &blob->way);
        if (blob->reads == 0)
            blob->reads = tti_transport_reads(list[i], carrier->object);
        result = list[i]->address(carrier->object, entry->address, &bytes);
        if (result != TUTTI_OK)
            return TTI_CONTEXT(result, "while asking transport %s for its address", list[i]->name);
        snprintf(entry->name, sizeof entry->name, "%s", list[i]->name);
        entry->bytes = (uint32_t)bytes;
        blob->transports++;
    }
    return TUTTI_OK;
}

/* ---- reading the others' blobs ---- */

static const struct identity_blob *peers_blob(const struct tti_peers *peers, int rank)
{
    return (const struct identity_blob *)(const void *)(peers->blobs +
                                                        (size_t)rank * peers->blob_bytes);
}

static enum tutti_result peers_identify(struct tti_peers *peers)
{
    for (int r = 0; r < peers->size; r++) {
        const struct identity_blob *blob = peers_blob(peers, r);
        struct tti_peer *peer = &peers->all[r];
        if (blob->transports > BLOB_TRANSPORTS || !memchr(blob->name, 0, sizeof blob->name))
            return TTI_FAIL(TUTTI_ERR_PROTOCOL, "rank %d sent an identity that makes no sense", r);
        snprintf(peer->name, sizeof peer->name, "%s", blob->name);
        peers->names[r] = peer->name;
        peer->public.rank = r;
        peer->public.name = peer->name;
        peer->public.host = blob->host;
        peer->public.process = blob->process;
        peer->public.pid = blob->pid;
        peer->carrier = -1;
        peer->host = -1;
    }
    return TUTTI_OK;
}

static void peers_number_hosts(struct tti_peers *peers)
{
    uint64_t mine = peers->all[peers->rank].public.host;
    peers->same_process = true;
    peers->sorted = true;
    for (int r = 0; r < peers->size; r++) {
        struct tti_peer *peer = &peers->all[r];
        int local = 0;
        for (int before = 0; before < r; before++)
            if (peers->all[before].public.host == peer->public.host) {
                peer->host = peers->all[before].host;
                local++;
            }
        if (peer->host < 0)
            peer->host = peers->nhosts++;
        peer->public.local_rank = local;
        peers->host_of[r] = peer->host;
        peers->sorted &= r == 0 || peers->host_of[r - 1] <= peer->host;
        peers->local_size += peer->public.host == mine;
        peers->same_process &= peer->public.process == peers->all[0].public.process;
    }
    peers->local_rank = peers->all[peers->rank].public.local_rank;
}

/* The bits a second of all ways out of a host; 0 when one of them is not known. */
static double peers_host_line(const struct tti_peers *peers, int host)
{
    double bits = 0;
    for (int r = 0; r < peers->size; r++) {
        const struct identity_blob *blob = peers_blob(peers, r);
        bool seen = false;
        if (peers->host_of[r] != host)
            continue;
        if (!(blob->line_bits > 0))
            return 0;
        for (int before = 0; before < r && !seen; before++)
            seen = peers->host_of[before] == host && peers_blob(peers, before)->way == blob->way;
        bits += seen ? 0 : blob->line_bits;
    }
    return bits;
}

/* All must come to the same answer, so it is that of all together. */
static void peers_reads(struct tti_peers *peers)
{
    const uint64_t first = peers_blob(peers, 0)->reads;
    peers->reads = first != 0;
    for (int r = 1; r < peers->size; r++)
        peers->reads &= peers_blob(peers, r)->reads == first;
}

static bool peers_all_have(const struct tti_peers *peers, const char *transport)
{
    for (int r = 0; r < peers->size; r++) {
        const struct identity_blob *blob = peers_blob(peers, r);
        uint32_t t = 0;
        while (t < blob->transports &&
               strncmp(blob->transport[t].name, transport, sizeof blob->transport[t].name) != 0)
            t++;
        if (t == blob->transports)
            return false;
    }
    return true;
}

/* Ranks of a host that go by the same NICs, by what their transports say of the first of them. */
static void peers_number_gates(struct tti_peers *peers)
{
    struct tti_gates *gates = &peers->gates;
    for (int r = 0; r < peers->size; r++) {
        int same = 0, here = 0, last = -1; /* `here`: of the host's, up to this rank */
        while (same < r && (peers->host_of[same] != peers->host_of[r] ||
                            peers_blob(peers, same)->way != peers_blob(peers, r)->way))
            same++;
        peers->gate_of[r] = same < r ? peers->gate_of[same] : gates->count++;
        for (int before = 0; before <= r; before++)
            if (peers->host_of[before] == peers->host_of[r] && peers->gate_of[before] > last) {
                last = peers->gate_of[before];
                here++;
            }
        gates->most = here > gates->most ? here : gates->most;
    }
    if (peers->nhosts < 2 || gates->most < 2) {
        *gates = (struct tti_gates){0};
        return;
    }
    gates->of = peers->gate_of;
    TTI_LOG(TTI_LOG_DEBUG,
            "ranks leave their host by up to %d NICs, or sets of them: lanes of rings "
            "and chains by each in turn",
            gates->most);
}

static void peers_lines(struct tti_peers *peers)
{
    for (int host = 0; peers->nhosts > 1 && host < peers->nhosts; host++) {
        double bits = peers_host_line(peers, host);
        if (host == 0 || bits < peers->line_bits)
            peers->line_bits = bits;
    }
}

/* The first of this rank's transports that the peer has too and that both can use. */
static enum tutti_result peer_choose(struct tti_peers *peers, int rank)
{
    struct tti_peer *peer = &peers->all[rank];
    const struct identity_blob *blob = peers_blob(peers, rank);
    char tried[200] = "";
    size_t used = 0;
    for (int c = 0; c < peers->ncarriers; c++) {
        const struct tti_carrier *carrier = &peers->carriers[c];
        used += (size_t)snprintf(tried + used, used < sizeof tried ? sizeof tried - used : 0,
                                 "%s%s", c ? ", " : "", carrier->ops->name);
        used = used < sizeof tried ? used : sizeof tried - 1;
        for (uint32_t t = 0; t < blob->transports; t++) {
            const struct blob_transport *entry = &blob->transport[t];
            if (strncmp(entry->name, carrier->ops->name, sizeof entry->name) != 0 ||
                entry->bytes > TUTTI_ADDRESS_BYTES)
                continue;
            struct tutti_peer view = peer->public;
            view.address = entry->address;
            view.address_bytes = entry->bytes;
            if (!carrier->ops->reaches(carrier->object, &view))
                continue;
            peer->public = view;
            peer->carrier = c;
            TTI_LOG(TTI_LOG_DEBUG, "rank %d (%s): transport %s", rank, peer->name,
                    carrier->ops->name);
            return TUTTI_OK;
        }
    }
    return TTI_FAIL(
        TUTTI_ERR_UNSUPPORTED,
        "no transport reaches rank %d (%s) from rank %d (%s); tried %s. TUTTI_TRANSPORT "
        "or --transport may exclude the one that would (tcp reaches other hosts)",
        rank, peer->name, peers->rank, peers->all[peers->rank].name, tried);
}

static enum tutti_result peers_allocate(struct tti_peers *peers, int rank, int size)
{
    size_t n = (size_t)size;
    peers->rank = rank;
    peers->size = size;
    peers->blob_bytes = sizeof(struct identity_blob);
    peers->all = tti_calloc(n, sizeof *peers->all);
    peers->names = tti_calloc(n, sizeof *peers->names);
    peers->host_of = tti_calloc(n, sizeof *peers->host_of);
    peers->gate_of = tti_calloc(n, sizeof *peers->gate_of);
    peers->blobs = tti_calloc(n, peers->blob_bytes);
    return peers->all && peers->names && peers->host_of && peers->gate_of && peers->blobs
               ? TUTTI_OK
               : TUTTI_ERR_MEMORY;
}

static enum tutti_result peers_exchange(struct tti_boot *boot, const struct tti_meeting *meeting,
                                        const char *transports, const char *plugins,
                                        uint64_t deadline, struct tti_peers *peers)
{
    struct identity_blob *mine = tti_calloc(1, sizeof *mine);
    long mbits = 0;
    if (!mine)
        return TUTTI_ERR_MEMORY;
    identity_fill(mine);
    snprintf(peers->all[peers->rank].name, BLOB_NAME, "%s", mine->name);
    peers->env.name = peers->all[peers->rank].name;
    enum tutti_result result = carriers_open(peers, transports, plugins, mine);
    if (result == TUTTI_OK)
        result = tti_boot_address(boot, meeting->host, mine->address, sizeof mine->address);
    if (result == TUTTI_OK)
        result = tti_config_int("TUTTI_LINE_MBITS", 1, 100000000, 0, &mbits);
    if (mbits > 0) {
        mine->line_bits = (double)mbits * 1e6;
        mine->way = 1;
    }
    if (result == TUTTI_OK)
        result = tti_boot_all_gather(boot, mine, sizeof *mine, peers->blobs, deadline);
    free(mine);
    TTI_TRY(result);
    TTI_TRY(peers_identify(peers));
    peers_number_hosts(peers);
    peers_number_gates(peers);
    peers_lines(peers);
    peers_reads(peers);
    peers->have_inproc = peers_all_have(peers, "inproc");
    peers->have_shm = peers_all_have(peers, "shm");
    tti_boot_names(boot, peers->names);
    for (int r = 0; r < peers->size; r++)
        if (r != peers->rank)
            TTI_TRY(peer_choose(peers, r));
    return TUTTI_OK;
}

enum tutti_result tti_peers_create(struct tti_boot *boot, const struct tti_meeting *meeting,
                                   int rank, int size, const char *transports, const char *plugins,
                                   int lanes, uint64_t job, uint64_t deadline,
                                   struct tti_peers *peers)
{
    TTI_TRY(peers_allocate(peers, rank, size));
    peers->env = (struct tutti_transport_env){
        .size = sizeof(struct tutti_transport_env),
        .services = tti_transport_services(),
        .job = job,
        .secret = meeting->secret,
        .rank = rank,
        .nranks = size,
        .lanes = lanes,
        .far_nics = peers->far_nics,
        .host_ranks = peers->host_ranks,
    };
    return peers_exchange(boot, meeting, transports, plugins, deadline, peers);
}

const char *tti_peers_address(const struct tti_peers *peers, int rank)
{
    return peers_blob(peers, rank)->address;
}

void tti_peers_close(struct tti_peers *peers)
{
    while (peers->ncarriers > 0) {
        struct tti_carrier *carrier = &peers->carriers[--peers->ncarriers];
        carrier->ops->close(carrier->object);
    }
}

void tti_peers_destroy(struct tti_peers *peers)
{
    tti_peers_close(peers);
    free(peers->all);
    free(peers->names);
    free(peers->host_of);
    free(peers->gate_of);
    for (int level = 0; level < TTI_NEAR_LEVELS; level++)
        free(peers->near_of[level]);
    free(peers->blobs);
    free(peers->far_nics);
    memset(peers, 0, sizeof *peers);
}
