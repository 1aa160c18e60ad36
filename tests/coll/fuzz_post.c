/* Fuzzes what the post reads from a peer (coll/post_wire.c): heads of puts and signals, their data,
 * cut into fragments as the peer likes. The input is a script of one-byte steps with their
 * operands, by which rank 1 writes to rank 0. Whatever it says, rank 0 writes into its windows
 * alone, counts signals of rank 1 alone, and fails with a text that names that rank. */
#include "coll/post_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    RANKS = 2,
    WINDOWS = 2,
    BYTES = 96,
    GUARD = 64,
    FRAGMENTS = 64,
    FRAGMENT = 256,
    PAINT = 0xa5
};
enum { TAGS = 4 }; /* two of them are right */

struct wire {
    struct {
        uint64_t tag;
        size_t bytes;
        unsigned char data[FRAGMENT];
    } fragments[FRAGMENTS];
    size_t first, count, used; /* used: bytes of the first */
};

struct fuzz {
    const uint8_t *data;
    size_t size;
    struct wire wire;
    struct tutti_comm comm;
    struct tti_peer peers[RANKS];
    struct tti_link link;
    struct tti_post_peer post_peers[RANKS];
    struct tti_post post;
    struct tutti_window windows[WINDOWS];
    struct tti_board *board;
    unsigned char memory[WINDOWS][GUARD + BYTES + GUARD];
};

static void fuzz_require(bool holds)
{
    if (!holds)
        abort();
}

static void fuzz_take(struct fuzz *self, void *into, size_t bytes)
{
    const size_t here = bytes < self->size ? bytes : self->size;
    memset(into, 0, bytes);
    if (here)
        memcpy(into, self->data, here);
    self->data += here;
    self->size -= here;
}

/* ---- a transport of one direction ---- */

static enum tutti_result wire_peek(void *endpoint, int lane, uint64_t *tag, const void **data,
                                   size_t *bytes)
{
    const struct wire *wire = endpoint;
    fuzz_require(lane == 0);
    *bytes = 0;
    if (wire->first == wire->count)
        return TUTTI_OK;
    *tag = wire->fragments[wire->first].tag;
    *data = wire->fragments[wire->first].data + wire->used;
    *bytes = wire->fragments[wire->first].bytes - wire->used;
    return TUTTI_OK;
}

static void wire_consume(void *endpoint, int lane, size_t bytes)
{
    struct wire *wire = endpoint;
    fuzz_require(lane == 0 && bytes > 0 &&
                 bytes <= wire->fragments[wire->first].bytes - wire->used);
    wire->used += bytes;
    if (wire->used == wire->fragments[wire->first].bytes) {
        wire->first++;
        wire->used = 0;
    }
}

/* In pieces of `piece` bytes, all of one kind. */
static void wire_write(struct wire *wire, uint64_t tag, const void *data, size_t bytes,
                       size_t piece)
{
    for (size_t at = 0; at < bytes && wire->count < FRAGMENTS; wire->count++) {
        const size_t here = bytes - at < piece ? bytes - at : piece;
        wire->fragments[wire->count].tag = tag;
        wire->fragments[wire->count].bytes = here;
        memcpy(wire->fragments[wire->count].data, (const char *)data + at, here);
        at += here;
    }
}

/* ---- steps ---- */

/* A head with the right mark, and numbers that are nearly right or anything. */
static void fuzz_head(struct fuzz *self, bool near)
{
    uint8_t small[4];
    struct tti_post_head head = {.magic = TTI_POST_MAGIC};
    fuzz_take(self, small, sizeof small);
    head.window = small[0] % (WINDOWS + 2);
    head.signal = (int32_t)(small[3] % (TUTTI_SIGNALS + 3)) - 2;
    if (near) {
        head.offset = small[1] % (BYTES + 2);
        head.bytes = small[2] % (BYTES + 2);
    } else {
        fuzz_take(self, &head.offset, sizeof head.offset);
        fuzz_take(self, &head.bytes, sizeof head.bytes);
    }
    wire_write(&self->wire, 1, &head, sizeof head, small[0] & 64 ? 24 : sizeof head);
}

static void fuzz_fragment(struct fuzz *self, uint64_t tag)
{
    unsigned char raw[FRAGMENT];
    uint8_t bytes = 0;
    fuzz_take(self, &bytes, 1);
    fuzz_take(self, raw, bytes);
    wire_write(&self->wire, tag, raw, bytes, FRAGMENT);
}

static void fuzz_step(struct fuzz *self, uint8_t step)
{
    if (step % 8 <= 2)
        fuzz_head(self, step % 8 > 0);
    else if (step % 8 <= 5)
        fuzz_fragment(self, 2);
    else if (step % 8 == 6)
        fuzz_fragment(self, step / 8 % TAGS);
    else
        tti_post_delist(&self->post, &self->windows[step / 8 % WINDOWS]);
}

/* ---- what must hold ---- */

static void fuzz_guards(const struct fuzz *self)
{
    for (int w = 0; w < WINDOWS; w++)
        for (int i = 0; i < GUARD; i++)
            fuzz_require(self->memory[w][i] == PAINT &&
                         self->memory[w][GUARD + BYTES + i] == PAINT);
    for (int s = 0; s < TUTTI_SIGNALS; s++)
        fuzz_require(self->board->from[0].arrived[s] == 0); /* rank 0's own */
}

static void fuzz_make(struct fuzz *self, const struct tutti_transport_ops *ops)
{
    memset(self->memory, PAINT, sizeof self->memory);
    snprintf(self->peers[0].name, sizeof self->peers[0].name, "here:0");
    snprintf(self->peers[1].name, sizeof self->peers[1].name, "here:1");
    self->comm.size = RANKS;
    self->comm.peers.all = self->peers;
    self->link = (struct tti_link){.peer = 1, .ops = ops, .endpoint = &self->wire};
    self->post_peers[1].link = &self->link;
    self->post.comm = &self->comm;
    self->post.peers = self->post_peers;
    self->post.board = self->board;
    pthread_mutex_init(&self->post.lock, NULL);
    pthread_cond_init(&self->post.changed, NULL);
    for (int w = 0; w < WINDOWS; w++) {
        self->windows[w] = (struct tutti_window){.number = (uint64_t)w + 1,
                                                 .memory = (char *)self->memory[w] + GUARD,
                                                 .bytes = (size_t)(BYTES - w)};
        tti_post_enlist(&self->post, &self->windows[w]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct tutti_transport_ops ops = {.peek = wire_peek, .consume = wire_consume};
    struct fuzz *self = calloc(1, sizeof *self);
    enum tutti_result result = TUTTI_OK;
    if (!self || tti_board_make(RANKS, 1, &self->board) != TUTTI_OK)
        abort();
    self->data = data;
    self->size = size;
    fuzz_make(self, &ops);
    while (self->size > 0 && self->wire.count < FRAGMENTS && result == TUTTI_OK) {
        uint8_t step = 0;
        bool moved = true;
        fuzz_take(self, &step, 1);
        fuzz_step(self, step);
        while (moved && result == TUTTI_OK) {
            moved = false;
            result = tti_post_pull(&self->post, &self->post_peers[1], &moved);
        }
    }
    fuzz_guards(self);
    fuzz_require(result == TUTTI_OK || result == TUTTI_ERR_PROTOCOL ||
                 result == TUTTI_ERR_MISMATCH);
    fuzz_require(result == TUTTI_OK || strstr(tutti_last_error(), "rank 1 (here:1)"));
    pthread_cond_destroy(&self->post.changed);
    pthread_mutex_destroy(&self->post.lock);
    tti_board_drop(self->board);
    free(self);
    return 0;
}
