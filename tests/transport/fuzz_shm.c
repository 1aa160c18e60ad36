/* Fuzzes what shm reads from a peer: lines and counts in shared memory, messages on the local
 * socket. The input is a script of one-byte steps with their operands, played by rank 1 against
 * rank 0. Whatever it says, rank 0 fails with a text or gives bytes that it may read. */
#include "tests/transport/shm_pair.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

_Static_assert(sizeof(struct shm_message) < 256, "a raw message can be longer than a right one");
enum { FUZZ_STEPS = 64, FUZZ_INTO = 4096 };

struct fuzz {
    struct shm_pair pair;
    const struct tutti_transport_ops *shm;
    const uint8_t *data;
    size_t size;
    uint64_t lines; /* written by rank 1 */
    int region;     /* a descriptor that it may pass */
};

static void fuzz_take(struct fuzz *self, void *into, size_t bytes)
{
    size_t here = bytes < self->size ? bytes : self->size;
    memset(into, 0, bytes);
    if (here)
        memcpy(into, self->data, here);
    self->data += here;
    self->size -= here;
}

static void fuzz_require(bool holds)
{
    if (!holds)
        abort();
}

static void fuzz_line(struct fuzz *self)
{
    struct shm_endpoint *peer = self->pair.endpoint[1];
    struct shm_line *line = &peer->lane[0].out.lines[shm_line_at(self->lines)];
    uint8_t kind_bytes[2];
    uint64_t words[3];
    fuzz_take(self, kind_bytes, sizeof kind_bytes);
    fuzz_take(self, words, sizeof words);
    line->far.where = words[0];
    line->far.bytes = words[1];
    line->far.id = words[2];
    tti_store_release(&line->flag,
                      shm_flag(self->lines++, (enum shm_kind)kind_bytes[0], kind_bytes[1]));
}

static void fuzz_message(struct fuzz *self)
{
    struct shm_endpoint *peer = self->pair.endpoint[1];
    uint8_t head[2];
    uint64_t words[2];
    fuzz_take(self, head, sizeof head);
    fuzz_take(self, words, sizeof words);
    struct shm_message message = {.kind = head[0], .id = words[0], .bytes = words[1]};
    unsigned char raw[256] = ""; /* too short or too long for a message */
    memcpy(raw, &message, sizeof message);
    if (head[1] & 2)
        (void)!send(peer->socket, raw, head[1], MSG_NOSIGNAL | MSG_DONTWAIT);
    else
        (void)tti_shm_message_send(peer->socket, &message, &self->region, head[1] & 1);
}

/* Rank 0 looks at what has come, and touches all of it. */
static void fuzz_read(struct fuzz *self, bool receive)
{
    static unsigned char into[FUZZ_INTO];
    void *endpoint = self->pair.endpoint[0];
    uint64_t tag = 0;
    const void *data = NULL;
    size_t bytes = 0;
    volatile unsigned char sum = 0;
    enum tutti_result result =
        receive ? self->shm->receive(endpoint, 0, &tag, into, sizeof into, &bytes)
                : self->shm->peek(endpoint, 0, &tag, &data, &bytes);
    if (result != TUTTI_OK) {
        fuzz_require(strstr(tutti_last_error(), "rank 1 (here:1)") != NULL);
        return;
    }
    for (size_t i = 0; !receive && i < bytes; i += 64)
        sum = (unsigned char)(sum + ((const unsigned char *)data)[i]);
    if (!receive && bytes)
        self->shm->consume(endpoint, 0, bytes > 64 ? 64 : bytes);
}

static void fuzz_step(struct fuzz *self, uint8_t step)
{
    static const unsigned char block[100];
    struct shm_endpoint *peer = self->pair.endpoint[1];
    uint64_t word = 0;
    size_t accepted = 0;
    if (step % 8 <= 1) {
        fuzz_line(self);
    } else if (step % 8 == 2) {
        fuzz_message(self);
    } else if (step % 8 == 3) {
        fuzz_take(self, &word, sizeof word);
        tti_store_release(peer->lane[0].in.ack, word);
    } else if (step % 8 == 4) {
        (void)self->shm->send(self->pair.endpoint[0], 0, 1, block, sizeof block, &accepted);
        fuzz_require(accepted <= sizeof block);
    } else if (step % 8 == 5) {
        tti_shm_look(self->pair.transport[0]);
    } else {
        fuzz_read(self, step % 8 == 7);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz self = {.data = data, .size = size};
    self.shm = shm_pair_ops();
    self.region = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    fuzz_require(self.region >= 0 && ftruncate(self.region, 8192) == 0 &&
                 fcntl(self.region, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    shm_pair_open(&self.pair);
    shm_pair_connect(&self.pair);
    for (int i = 0; i < FUZZ_STEPS && self.size > 0; i++) {
        uint8_t step = 0;
        fuzz_take(&self, &step, 1);
        fuzz_step(&self, step);
    }
    fuzz_read(&self, false);
    shm_pair_close(&self.pair);
    close(self.region);
    return 0;
}
