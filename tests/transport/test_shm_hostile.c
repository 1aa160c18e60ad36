/* shm against a peer that does what no Tutti does: lines in shared memory that point anywhere,
 * messages that are none, descriptors that could shrink, strangers at the door. Each must end in an
 * error of that one connection, or in nothing at all. */
#include "tests/transport/shm_pair.h"

#include "device/memory.h"
#include "tests/tutti_cmocka.h"
#include "transport/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const struct tutti_transport_ops *shm;
static enum tutti_result peek_once(struct shm_pair *pair, size_t *bytes)
{
    uint64_t tag = 0;
    const void *data = NULL;
    return shm->peek(pair->endpoint[0], 0, &tag, &data, bytes);
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Rank 1 writes a line by hand; rank 0 must refuse it, and go on refusing. */
static void refuses_line(uint64_t flag, uint64_t where, uint64_t bytes, uint64_t id,
                         enum tutti_result code)
{
    struct shm_pair pair;
    size_t ready = 0;
    shm_pair_open(&pair);
    shm_pair_connect(&pair);
    struct shm_endpoint *peer = pair.endpoint[1];
    struct shm_line *line = &peer->lane[0].out.lines[0];
    if (code == TUTTI_ERR_SYSTEM && !tti_load_acquire(&peer->theirs->reads_memory))
        code = TUTTI_ERR_PROTOCOL; /* no process_vm_readv here: no such line is expected */
    line->far.where = where;
    line->far.bytes = bytes;
    line->far.id = id;
    tti_store_release(&line->flag, flag);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(peek_once(&pair, &ready), code);
        assert_non_null(strstr(tutti_last_error(), "rank 1 (here:1)"));
    }
    shm_pair_close(&pair);
}

static void hostile_lines(void **state)
{
    (void)state;
    const uint64_t piece = shm_flag(0, SHM_KIND_PIECE, 0), region = shm_flag(0, SHM_KIND_REGION, 0);
    const uint64_t memory = shm_flag(0, SHM_KIND_MEMORY, 0), ring = 8 * 65536;
    const uint64_t tail = shm_flag(0, SHM_KIND_TAIL, 0);
    const enum tutti_result no = TUTTI_ERR_PROTOCOL;
    refuses_line(shm_flag(0, SHM_KIND_INLINE, 0), 0, 0, 0, no);
    refuses_line(shm_flag(0, SHM_KIND_INLINE, SHM_INLINE + 1), 0, 0, 0, no);
    refuses_line(shm_flag(0, (enum shm_kind)0, 0), 0, 64, 0, no);
    refuses_line(shm_flag(0, (enum shm_kind)9, 0), 0, 64, 0, no);
    refuses_line(tail, 0, 0, 0, no);
    refuses_line(tail, 0, shm_pair_tail() + 1, 0, no);
    refuses_line(piece, 0, 0, 0, no);
    refuses_line(piece, 0, ring + 1, 0, no);
    refuses_line(piece, ring, 1, 0, no);
    refuses_line(piece, ring - 63, 64, 0, no);
    refuses_line(piece, UINT64_MAX - 10, 64, 0, no);
    refuses_line(region, 0, 64, 77, no); /* never passed */
    refuses_line(memory, 0, UINT64_MAX, 0, no);
    refuses_line(memory, 64, 4096, 0, TUTTI_ERR_SYSTEM); /* not mapped there */
}

static void hostile_region_offset(void **state)
{
    (void)state;
    struct shm_pair pair;
    void *memory = NULL;
    size_t accepted = 0, ready = 0;
    struct tti_region region;
    assert_int_equal(tti_region_alloc(1 << 16, &memory), TUTTI_OK);
    assert_true(tti_region_find(memory, 1, &region));
    shm_pair_open(&pair);
    shm_pair_connect(&pair);
    assert_int_equal(shm->send(pair.endpoint[1], 0, 1, memory, 1 << 16, &accepted), TUTTI_OK);
    assert_int_equal(accepted, 1 << 16);
    struct shm_endpoint *peer = pair.endpoint[1];
    struct shm_line *line = &peer->lane[0].out.lines[0];
    assert_int_equal(line->flag >> 8 & 0xff, SHM_KIND_REGION);
    line->far.where = region.bytes - 64;
    assert_int_equal(peek_once(&pair, &ready), TUTTI_ERR_PROTOCOL);
    shm_pair_close(&pair);
    assert_int_equal(tti_region_free(memory), TUTTI_OK);
}

/* Places that rank 1 makes up: rank 0 must refuse to map them. */
static void hostile_places(void **state)
{
    (void)state;
    enum { BYTES = 1 << 16 };
    void *memory = NULL, *address = NULL;
    assert_int_equal(tti_region_alloc(BYTES, &memory), TUTTI_OK);
    static const struct {
        uint64_t wrong_id, offset;
        size_t bytes;
    } bad[] = {
        {77, 0, 64}, {0, BYTES, 1}, {0, BYTES - 63, 64}, {0, UINT64_MAX - 10, 64}, {0, 1, BYTES},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct shm_pair pair;
        struct tutti_place place;
        shm_pair_open(&pair);
        shm_pair_connect(&pair);
        assert_true(shm->offer(pair.endpoint[1], memory, BYTES, &place));
        assert_int_equal(shm->map(pair.endpoint[0], &place, BYTES, &address), TUTTI_OK);
        place.region += bad[i].wrong_id;
        place.offset = bad[i].offset;
        assert_int_equal(shm->map(pair.endpoint[0], &place, bad[i].bytes, &address),
                         TUTTI_ERR_PROTOCOL);
        assert_non_null(strstr(tutti_last_error(), "rank 1 (here:1)"));
        shm->unmap(pair.endpoint[0]);
        shm_pair_close(&pair);
    }
    assert_int_equal(tti_region_free(memory), TUTTI_OK);
}

/* "Gone" for a region that is in use, and descriptors that cannot be written to. */
static void hostile_regions(void **state)
{
    (void)state;
    struct shm_pair pair;
    void *memory = NULL, *address = NULL;
    struct tutti_place place;
    assert_int_equal(tti_region_alloc(8192, &memory), TUTTI_OK);
    shm_pair_open(&pair);
    shm_pair_connect(&pair);
    struct shm_endpoint *peer = pair.endpoint[1];
    assert_true(shm->offer(peer, memory, 8192, &place));
    assert_int_equal(shm->map(pair.endpoint[0], &place, 8192, &address), TUTTI_OK);
    struct shm_message message = {.kind = SHM_GONE, .id = place.region};
    assert_int_equal(tti_shm_message_send(peer->socket, &message, NULL, 0), SHM_IO_DONE);
    tti_shm_look(pair.transport[0]);
    memset(address, 1, 8192); /* still there */
    shm->unmap(pair.endpoint[0]);

    int fd = memfd_create("read-only", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 8192), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE), 0);
    message = (struct shm_message){.kind = SHM_REGION, .id = 12345, .bytes = 8192};
    assert_int_equal(tti_shm_message_send(peer->socket, &message, &fd, 1), SHM_IO_DONE);
    place = (struct tutti_place){12345, 0};
    assert_int_equal(shm->map(pair.endpoint[0], &place, 64, &address), TUTTI_ERR_PROTOCOL);
    assert_non_null(strstr(tutti_last_error(), "cannot be written to"));
    close(fd);
    shm_pair_close(&pair);
    assert_int_equal(tti_region_free(memory), TUTTI_OK);
}

/* A peer that holds on is cut off from what this exchange offered, and from nothing else: other
 * communicators may have it in use. */
static void cut_off_what_was_offered_last(void **state)
{
    (void)state;
    struct shm_pair pair;
    void *memory[2] = {NULL, NULL}, *address = NULL;
    struct tutti_place place;
    struct tti_region before[2], after[2];
    shm_pair_open(&pair);
    shm_pair_connect(&pair);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tti_region_alloc(8192, &memory[i]), TUTTI_OK);
        assert_true(tti_region_find(memory[i], 1, &before[i]));
        assert_true(shm->offer(pair.endpoint[1], memory[i], 8192, &place));
        assert_int_equal(shm->map(pair.endpoint[0], &place, 8192, &address), TUTTI_OK);
        if (i == 0) { /* both let go: the exchange is over */
            shm->unmap(pair.endpoint[0]);
            shm->unmap(pair.endpoint[1]);
        }
    }
    assert_int_equal(shm->withdraw(pair.endpoint[1], 10), TUTTI_OK);
    for (int i = 0; i < 2; i++)
        assert_true(tti_region_find(memory[i], 1, &after[i]));
    assert_true(after[0].id == before[0].id);
    assert_true(after[1].id != before[1].id);
    shm->unmap(pair.endpoint[0]);
    shm_pair_close(&pair);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tti_region_free(memory[i]), TUTTI_OK);
}

/* A count of consumed lines that is ahead of what was sent shows within so many sends. */
static void refuses_ack(size_t bytes, int sends)
{
    struct shm_pair pair;
    static char block[16 << 10];
    size_t accepted = 1;
    enum tutti_result result = TUTTI_OK;
    shm_pair_open(&pair);
    shm_pair_connect(&pair);
    struct shm_endpoint *peer = pair.endpoint[1];
    tti_store_release(peer->lane[0].in.ack, 1000000);
    for (int i = 0; i < sends && result == TUTTI_OK; i++)
        result = shm->send(pair.endpoint[0], 0, 1, block, bytes, &accepted);
    assert_int_equal(result, TUTTI_ERR_PROTOCOL);
    assert_int_equal(accepted, 0);
    shm_pair_close(&pair);
}

static void hostile_ack(void **state)
{
    (void)state;
    refuses_ack(8, 2 * SHM_LINES);
}

/* There is no room for pieces long before there is none for lines. */
static void hostile_ack_of_pieces(void **state)
{
    (void)state;
    refuses_ack(16 << 10, SHM_LINES);
}

/* ---- messages of a peer --------------------------------------------------------------------- */

static void refuses_message(const struct shm_message *message, size_t bytes, int fd)
{
    struct shm_pair pair;
    size_t ready = 0;
    shm_pair_open(&pair);
    shm_pair_connect(&pair);
    struct shm_endpoint *peer = pair.endpoint[1];
    if (bytes == sizeof *message)
        assert_int_equal(tti_shm_message_send(peer->socket, message, &fd, fd >= 0 ? 1 : 0),
                         SHM_IO_DONE);
    else
        assert_int_equal(send(peer->socket, message, bytes, 0), bytes);
    tti_shm_look(pair.transport[0]);
    assert_int_equal(peek_once(&pair, &ready), TUTTI_ERR_PROTOCOL);
    assert_non_null(strstr(tutti_last_error(), "rank 1 (here:1)"));
    shm_pair_close(&pair);
}

static void hostile_messages(void **state)
{
    (void)state;
    struct shm_message message = {.kind = SHM_REGION, .id = 5, .bytes = 8192};
    int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int small = memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(ftruncate(unsealed, 8192), 0);
    assert_int_equal(ftruncate(small, 4096), 0);
    assert_int_equal(fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    refuses_message(&message, sizeof message, unsealed);
    refuses_message(&message, sizeof message, small);
    refuses_message(&message, sizeof message, ends[0]);
    refuses_message(&message, sizeof message, -1);
    refuses_message(&message, 10, -1);
    message.kind = 99;
    refuses_message(&message, sizeof message, -1);
    message.kind = SHM_HELLO;
    refuses_message(&message, sizeof message, small);
    close(unsealed);
    close(small);
    close(ends[0]);
    close(ends[1]);
}

/* ---- strangers ------------------------------------------------------------------------------ */

static int knock(const struct shm_pair *pair)
{
    const struct shm_transport *self = pair->transport[0];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(self->own.name);
    memcpy(address.sun_path + 1, self->own.name, length);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address,
                             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)),
                     0);
    return fd;
}

static int open_files(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Descriptors with not one byte: they are not kept. */
static void says_nothing(const struct shm_pair *pair)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = "";
    struct msghdr header = {.msg_control = control, .msg_controllen = sizeof control};
    const int passed[2] = {0, 0}, fd = knock(pair), before = open_files();
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof passed);
    memcpy(CMSG_DATA(rights), passed, sizeof passed);
    assert_int_equal(sendmsg(fd, &header, 0), 0);
    tti_shm_look(pair->transport[0]);
    tti_shm_look(pair->transport[0]);
    assert_int_equal(open_files(), before);
    close(fd);
}

/* Silent ones, babblers and forgers come first; the right peer must still get in. */
static void strangers(void **state)
{
    (void)state;
    struct shm_pair pair;
    enum { STRANGERS = 60 };
    int fds[STRANGERS], segment = memfd_create("segment", MFD_CLOEXEC);
    shm_pair_open(&pair);
    says_nothing(&pair);
    for (int i = 0; i < STRANGERS; i++) {
        struct shm_message hello = {.kind = SHM_HELLO, .lanes = 1, .job = pair.env[0].job};
        hello.from = i % 3 == 0 ? 1 : -7;
        hello.piece_narrow = hello.piece_ring = 8 * 65536;
        memcpy(hello.secret, shm_pair_secret, sizeof hello.secret);
        hello.secret[i % TUTTI_SECRET_BYTES] ^= 1;
        int passed[2] = {segment, segment};
        fds[i] = knock(&pair);
        if (i % 4 == 1)
            assert_int_equal(send(fds[i], "hello?", 6, 0), 6);
        else if (i % 4 != 0)
            assert_int_equal(tti_shm_message_send(fds[i], &hello, passed, 2), SHM_IO_DONE);
        if (i % 8 == 7)
            close(fds[i]);
        tti_shm_look(pair.transport[0]);
        tti_shm_look(pair.transport[0]);
    }
    shm_pair_connect(&pair);
    shm_pair_close(&pair);
    for (int i = 0; i < STRANGERS; i++)
        if (i % 8 != 7)
            close(fds[i]);
    close(segment);
}

static bool has_news(const struct shm_pair *pair)
{
    struct pollfd fd = {.fd = shm->fd(pair->transport[0]), .events = POLLIN};
    return poll(&fd, 1, 0) > 0;
}

/* A child has copies of the sockets when they are closed here: nothing is heard of them. */
static void copied_sockets(void **state)
{
    (void)state;
    struct shm_pair pair;
    shm_pair_open(&pair);
    shm_pair_connect(&pair);
    const int copy = dup(((struct shm_endpoint *)pair.endpoint[0])->socket);
    for (int i = 0; i < 2; i++) {
        shm->disconnect(pair.endpoint[i]);
        pair.endpoint[i] = NULL;
    }
    const bool endpoint_heard = has_news(&pair);
    tti_shm_look(pair.transport[0]);
    struct shm_transport *self = pair.transport[0];
    const int fd = knock(&pair);
    tti_shm_look(self);
    assert_int_equal(self->guest_count, 1);
    const int guest = dup(self->guests->socket);
    tti_shm_guest_drop(self, self->guests);
    close(fd);
    const bool guest_heard = has_news(&pair);
    tti_shm_look(self);
    assert_false(endpoint_heard || guest_heard);
    close(copy);
    close(guest);
    shm_pair_close(&pair);
}

/* The secret is right, what comes with it or is said of it is not. */
static void refuses_hello(struct shm_message hello, int segment, int bell, const char *why)
{
    struct shm_pair pair;
    char byte = 0;
    shm_pair_open(&pair);
    hello.kind = SHM_HELLO;
    hello.lanes = 1;
    hello.job = pair.env[0].job;
    hello.from = 1;
    hello.piece_narrow = 8 * 65536;
    memcpy(hello.secret, shm_pair_secret, sizeof hello.secret);
    int fd = knock(&pair), passed[2] = {segment, bell};
    assert_int_equal(tti_shm_message_send(fd, &hello, passed, 2), SHM_IO_DONE);
    assert_int_equal(shm->connect(pair.transport[0], &pair.peer[1], 1, &pair.endpoint[0]),
                     TUTTI_OK);
    enum tutti_result result = TUTTI_IN_PROGRESS;
    for (int i = 0; i < 10 && result == TUTTI_IN_PROGRESS; i++)
        result = shm->advance(pair.endpoint[0]);
    assert_int_equal(result, TUTTI_ERR_PROTOCOL);
    if (!strstr(tutti_last_error(), why))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), why);
    /* It learns of that at once, and what it may still say is not heard. */
    (void)send(fd, "x", 1, MSG_NOSIGNAL);
    tti_shm_look(pair.transport[0]);
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    shm_pair_close(&pair);
    close(fd);
}

static int make_segment(void)
{
    int segment = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(segment, (off_t)shm_segment_bytes(1, 8 * 65536)), 0);
    return segment;
}

static void refuses_segment(uint32_t tail_most, uint32_t pieces_shift, uint64_t ring,
                            const char *why)
{
    struct shm_message hello = {
        .piece_ring = ring, .tail_most = tail_most, .pieces_shift = pieces_shift};
    const int segment = make_segment();
    refuses_hello(hello, segment, segment, why);
    close(segment);
}

/* The same of what comes with a welcome. */
static void refuses_welcome(int bell)
{
    struct shm_pair pair;
    shm_pair_open(&pair);
    struct shm_transport *self = pair.transport[0];
    struct shm_message welcome = {.kind = SHM_WELCOME, .job = pair.env[0].job, .to = 1};
    memcpy(welcome.secret, shm_pair_secret, sizeof welcome.secret);
    assert_int_equal(shm->connect(pair.transport[1], &pair.peer[0], 1, &pair.endpoint[1]),
                     TUTTI_OK);
    tti_shm_look(self);
    assert_int_equal(self->guest_count, 1);
    assert_int_equal(tti_shm_message_send(self->guests->socket, &welcome, &bell, 1), SHM_IO_DONE);
    assert_int_equal(shm->advance(pair.endpoint[1]), TUTTI_ERR_PROTOCOL);
    shm_pair_close(&pair);
}

/* A rank that seems to sleep, and wants to be woken by what would end or hold up who does it. */
static void forged_bell(void **state)
{
    (void)state;
    enum { PIPE_WITHOUT_READER, EVENTFD_THAT_BLOCKS, SEGMENT, CASES };
    const struct shm_message hello = {.piece_ring = 8 * 65536, .tail_most = SHM_TAIL_LEAST};
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    close(ends[0]);
    const int blocks = eventfd(0, EFD_CLOEXEC), segment = make_segment();
    const int bells[CASES] = {ends[1], blocks, segment};
    const uint64_t one = 1;
    assert_int_equal(
        pwrite(segment, &one, sizeof one, (off_t)(offsetof(struct shm_header, side[1].sleeping))),
        sizeof one);
    assert_int_equal(fcntl(segment, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    for (int i = 0; i < CASES; i++)
        refuses_hello(hello, segment, bells[i], "that is not an eventfd");
    refuses_welcome(ends[1]);
    close(ends[1]);
    close(blocks);
    close(segment);
}

static void forged_segment(void **state)
{
    (void)state;
    enum { RING = 8 * 65536 };
    refuses_segment(SHM_TAIL_LEAST, 0, RING, "sealed");
    refuses_segment(SHM_TAIL_BYTES + 512, 0, RING, "tails of 1536 bytes");
    refuses_segment(0, 0, RING, "tails of 0 bytes");
    refuses_segment(SHM_TAIL_BYTES, SHM_PAGE, RING, "pieces 4096 bytes behind a page");
    refuses_segment(SHM_TAIL_BYTES, 0, 2 * RING, "sealed"); /* larger than ours it may be */
    refuses_segment(SHM_TAIL_BYTES, 0, RING + SHM_WIDE_MOST + SHM_PAGE, "rings of 17305600 bytes");
    refuses_segment(SHM_TAIL_BYTES, 0, RING - SHM_PAGE, "rings of 520192 bytes");
    refuses_segment(SHM_TAIL_BYTES, 0, RING + 1, "rings of 524289 bytes");
    refuses_segment(SHM_TAIL_BYTES, 0, UINT64_MAX - SHM_PAGE + 1,
                    "rings of 18446744073709547520 bytes");
}

/* ---- floods --------------------------------------------------------------------------------- */

/* One more comes for each that is taken, until so many have. */
static struct {
    const struct shm_pair *pair;
    int messages, guests;
} flood;

ssize_t __real_recvmsg(int socket, struct msghdr *header, int flags);
ssize_t __wrap_recvmsg(int socket, struct msghdr *header, int flags);
ssize_t __wrap_recvmsg(int socket, struct msghdr *header, int flags)
{
    const struct shm_message gone = {.kind = SHM_GONE, .id = 77};
    const ssize_t bytes = __real_recvmsg(socket, header, flags);
    if (flood.messages > 0) {
        const struct shm_endpoint *peer = flood.pair->endpoint[1];
        flood.messages--;
        assert_int_equal(tti_shm_message_send(peer->socket, &gone, NULL, 0), SHM_IO_DONE);
    }
    return bytes;
}

int __real_accept4(int socket, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int socket, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int socket, struct sockaddr *address, socklen_t *bytes, int flags)
{
    const int got = __real_accept4(socket, address, bytes, flags);
    if (flood.guests > 0) {
        flood.guests--;
        close(knock(flood.pair));
    }
    return got;
}

/* Who goes on and on is looked at in turns, between which there is time for others. */
static void floods(void **state)
{
    (void)state;
    struct shm_pair pair;
    size_t bytes = 0;
    shm_pair_open(&pair);
    shm_pair_connect(&pair);
    struct shm_transport *self = pair.transport[0];
    flood.pair = &pair;
    flood.messages = 100000;
    flood.guests = 1000;
    for (int i = 0; i < 2; i++) { /* the first finds nobody, and has them begin */
        tti_shm_endpoint_ready(pair.endpoint[0]);
        tti_shm_accept_all(self);
    }
    assert_true(flood.messages > 0 && flood.guests > 0);
    assert_true(self->look);
    flood.messages = flood.guests = 0;
    assert_int_equal(shm->send(pair.endpoint[1], 0, 1, "x", 1, &bytes), TUTTI_OK);
    assert_int_equal(peek_once(&pair, &bytes), TUTTI_OK);
    assert_int_equal(bytes, 1);
    while (self->look) /* and in the end all have been looked at */
        tti_shm_look(self);
    shm_pair_close(&pair);
}

/* ---- too few descriptors -------------------------------------------------------------------- */

static int crowded[SHM_DEVICE + 1]; /* so many messages of a kind find no room */

ssize_t __real_sendmsg(int socket, const struct msghdr *header, int flags);
ssize_t __wrap_sendmsg(int socket, const struct msghdr *header, int flags);
ssize_t __wrap_sendmsg(int socket, const struct msghdr *header, int flags)
{
    const struct shm_message *message = header->msg_iovlen ? header->msg_iov[0].iov_base : NULL;
    if (!message || header->msg_iov[0].iov_len < sizeof *message || message->kind > SHM_DEVICE ||
        crowded[message->kind] == 0)
        return __real_sendmsg(socket, header, flags);
    crowded[message->kind]--;
    errno = ETOOMANYREFS;
    return -1;
}

/* Other ranks of this user have as many descriptors under way as the kernel allows. */
static void crowded_start(void **state)
{
    (void)state;
    struct shm_pair pair;
    const int before = open_files();
    size_t bytes = 0;
    shm_pair_open(&pair);
    crowded[SHM_HELLO] = 3;
    crowded[SHM_WELCOME] = 2;
    shm_pair_connect(&pair);
    assert_int_equal(crowded[SHM_HELLO] + crowded[SHM_WELCOME], 0);
    assert_int_equal(shm->send(pair.endpoint[1], 0, 1, "x", 1, &bytes), TUTTI_OK);
    assert_int_equal(peek_once(&pair, &bytes), TUTTI_OK);
    assert_int_equal(bytes, 1);
    shm_pair_close(&pair);
    assert_int_equal(open_files(), before);
}

/* Nobody sleeps on a message that had no room: none will come that would wake it. */
static void crowded_awake(void **state)
{
    (void)state;
    struct shm_pair pair;
    shm_pair_open(&pair);
    crowded[SHM_HELLO] = crowded[SHM_WELCOME] = 1;
    for (int i = 0; i < 2; i++)
        assert_int_equal(shm->connect(pair.transport[!i], &pair.peer[i], 1, &pair.endpoint[!i]),
                         TUTTI_OK);
    assert_false(shm->arm(pair.transport[1]));
    assert_int_equal(shm->advance(pair.endpoint[1]), TUTTI_IN_PROGRESS);
    for (int i = 0; i < 4 && crowded[SHM_WELCOME] > 0; i++)
        assert_int_equal(shm->advance(pair.endpoint[0]), TUTTI_IN_PROGRESS);
    assert_int_equal(crowded[SHM_WELCOME], 0);
    assert_false(shm->arm(pair.transport[0]));
    assert_int_equal(shm->advance(pair.endpoint[0]), TUTTI_OK);
    assert_int_equal(shm->advance(pair.endpoint[1]), TUTTI_OK);
    shm_pair_close(&pair);
}

/* Open and connect two ranks, and send by reference, while only `spare` more files may be opened.
 * Returns the first error. */
static enum tutti_result scarce_run(struct shm_pair *pair, void *memory, int spare)
{
    struct rlimit limit, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int probe = dup(0);
    close(probe); /* the lowest free number: files from here on are refused */
    low = (struct rlimit){.rlim_cur = (rlim_t)(probe + spare), .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    enum tutti_result result = TUTTI_OK;
    size_t bytes = 0;
    for (int i = 0; i < 2 && result == TUTTI_OK; i++) {
        result = shm->open(&pair->env[i], &pair->transport[i]);
        if (result == TUTTI_OK)
            result = shm->address(pair->transport[i], pair->address[i], &bytes);
    }
    for (int i = 0; i < 2 && result == TUTTI_OK; i++) {
        pair->peer[!i].address_bytes = bytes;
        result = shm->connect(pair->transport[i], &pair->peer[!i], 1, &pair->endpoint[i]);
    }
    bool done = false;
    for (int i = 0; i < 200 && !done && result == TUTTI_OK; i++) {
        enum tutti_result first = shm->advance(pair->endpoint[0]);
        result = first == TUTTI_OK || first == TUTTI_IN_PROGRESS ? shm->advance(pair->endpoint[1])
                                                                 : first;
        done = first == TUTTI_OK && result == TUTTI_OK;
        result = result == TUTTI_IN_PROGRESS ? TUTTI_OK : result;
    }
    if (result == TUTTI_OK && !done)
        result = TTI_FAIL(TUTTI_ERR_TIMEOUT, "neither connected nor an error");
    if (result == TUTTI_OK) {
        result = shm->send(pair->endpoint[0], 0, 1, memory, 1 << 16, &bytes);
        uint64_t tag = 0;
        const void *data = NULL;
        if (result == TUTTI_OK)
            result = shm->peek(pair->endpoint[1], 0, &tag, &data, &bytes);
        if (result == TUTTI_OK && bytes > 0) /* or the sender would wait for us when it leaves */
            shm->consume(pair->endpoint[1], 0, bytes);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return result;
}

static void scarce_descriptors(void **state)
{
    (void)state;
    void *memory = NULL;
    bool worked = false;
    assert_int_equal(tti_region_alloc(1 << 16, &memory), TUTTI_OK);
    for (int spare = 0; spare < 20; spare++) {
        struct shm_pair pair = {.transport = {NULL, NULL}};
        for (int i = 0; i < 2; i++) {
            pair.env[i] = (struct tutti_transport_env){.size = sizeof pair.env[i],
                                                       .services = tti_transport_services(),
                                                       .job = 9,
                                                       .secret = shm_pair_secret,
                                                       .rank = i,
                                                       .nranks = 2,
                                                       .name = "here:1",
                                                       .lanes = 1};
            pair.peer[i] =
                (struct tutti_peer){.rank = i, .name = "here:1", .address = pair.address[i]};
        }
        int before = open_files();
        enum tutti_result result = scarce_run(&pair, memory, spare);
        if (result != TUTTI_OK && !strstr(tutti_last_error(), "ulimit -n") &&
            !strstr(tutti_last_error(), "ended the connection before it was made"))
            fail_msg("%d files: error %d, %s", spare, (int)result, tutti_last_error());
        assert_true(worked ? result == TUTTI_OK : true);
        worked = worked || result == TUTTI_OK;
        shm_pair_close(&pair);
        assert_int_equal(open_files(), before);
    }
    assert_true(worked);
    assert_int_equal(tti_region_free(memory), TUTTI_OK);
}

static void bad_settings(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"TUTTI_SHM_SLOTS", "1"},       {"TUTTI_SHM_SLOT_BYTES", "1000"},
        {"TUTTI_SHM_SLOT_BYTES", "1G"}, {"TUTTI_SHM_CMA", "maybe"},
        {"TUTTI_SHM_PIECES", "broad"},  {"TUTTI_SHM_WIDE", "1000"},
        {"TUTTI_SHM_WIDE", "2G"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tutti_transport_env env = {
            .size = sizeof env, .secret = shm_pair_secret, .nranks = 1};
        void *transport = NULL;
        setenv(bad[i][0], bad[i][1], 1);
        assert_int_equal(shm->open(&env, &transport), TUTTI_ERR_ARGUMENT);
        assert_null(transport);
        assert_non_null(strstr(tutti_last_error(), bad[i][0]));
        unsetenv(bad[i][0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_lines),
        cmocka_unit_test(hostile_region_offset),
        cmocka_unit_test(hostile_places),
        cmocka_unit_test(hostile_regions),
        cmocka_unit_test(hostile_ack),
        cmocka_unit_test(hostile_ack_of_pieces),
        cmocka_unit_test(hostile_messages),
        cmocka_unit_test(strangers),
        cmocka_unit_test(copied_sockets),
        cmocka_unit_test(forged_segment),
        cmocka_unit_test(forged_bell),
        cmocka_unit_test(floods),
        cmocka_unit_test(crowded_start),
        cmocka_unit_test(crowded_awake),
        cmocka_unit_test(scarce_descriptors),
        cmocka_unit_test(bad_settings),
        cmocka_unit_test(cut_off_what_was_offered_last),
    };
    shm = shm_pair_ops();
    setenv("TUTTI_SHM_PIECES", "narrow", 1); /* rings of one size on all machines */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
