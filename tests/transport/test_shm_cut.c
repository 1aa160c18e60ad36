/* A sender that gives up takes back the memory that it has lent: what a receiver has read of it
 * until then, or reads after it, is no data. Copied by the transport, and looked at in place. */
#include "tests/transport/shm_pair.h"

#include "device/memory.h"
#include "device/reduce.h"
#include "tests/tutti_cmocka.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 16 };

static struct shm_pair pair;
static const struct tutti_transport_ops *shm;
static void (*meanwhile)(void); /* while the receiver is in the middle of its copy; or NULL */
static void *lent;

void __real_tti_copy_received(void *dst, const void *src, size_t bytes);
void __wrap_tti_copy_received(void *dst, const void *src, size_t bytes);
void __wrap_tti_copy_received(void *dst, const void *src, size_t bytes)
{
    const size_t half = bytes / 2;
    __real_tti_copy_received(dst, src, half);
    if (meanwhile)
        meanwhile();
    __real_tti_copy_received((char *)dst + half, (const char *)src + half, bytes - half);
}

/* Rank 0's operation fails: it waits a second for what it is owed, and its memory is its own. */
static void give_up(void)
{
    shm->disconnect(pair.endpoint[0]);
    pair.endpoint[0] = NULL;
    memset(lent, 0x55, BYTES);
}

static void open_and_send(size_t bytes, enum shm_kind kind)
{
    size_t accepted = 0;
    shm = shm_pair_ops();
    shm_pair_open(&pair);
    shm_pair_connect(&pair);
    assert_int_equal(tti_region_alloc(BYTES, &lent), TUTTI_OK);
    memset(lent, 0x11, BYTES);
    const struct shm_endpoint *sender = pair.endpoint[0];
    assert_int_equal(shm->send(pair.endpoint[0], 0, 7, lent, bytes, &accepted), TUTTI_OK);
    assert_int_equal(accepted, bytes);
    assert_int_equal(sender->lane[0].out.lines[shm_line_at(0)].flag >> 8 & 0xff, kind);
}

static void end(void)
{
    meanwhile = NULL;
    shm_pair_close(&pair);
    assert_int_equal(tti_region_free(lent), TUTTI_OK);
}

static void copied(void **state)
{
    unsigned char *into = malloc(BYTES);
    (void)state;
    assert_non_null(into);
    for (int gives_up = 0; gives_up < 2; gives_up++) {
        uint64_t tag = 0;
        size_t taken = 0;
        open_and_send(BYTES, SHM_KIND_REGION);
        meanwhile = gives_up ? give_up : NULL;
        const enum tutti_result result =
            shm->receive(pair.endpoint[1], 0, &tag, into, BYTES, &taken);
        assert_int_equal(result, gives_up ? TUTTI_ERR_PEER : TUTTI_OK);
        if (gives_up)
            assert_non_null(strstr(tutti_last_error(), "rank 0 (here:1) closed"));
        else
            assert_true(taken == BYTES && into[0] == 0x11 && into[BYTES - 1] == 0x11);
        end();
    }
    free(into);
}

/* Nobody waits where the connection has failed at this end, but what was lent is taken back as
 * well: before it is opened, and in the middle of the copy. */
static void broken(void **state)
{
    unsigned char *into = malloc(BYTES);
    (void)state;
    assert_non_null(into);
    for (int reads = 0; reads < 2; reads++) {
        uint64_t tag = 0;
        size_t taken = 0;
        open_and_send(BYTES, SHM_KIND_REGION);
        (void)tti_shm_break(pair.endpoint[0], TTI_FAIL(TUTTI_ERR_SYSTEM, "too many open files"));
        meanwhile = reads ? give_up : NULL;
        if (!reads)
            give_up();
        assert_int_equal(shm->receive(pair.endpoint[1], 0, &tag, into, BYTES, &taken),
                         TUTTI_ERR_PEER);
        assert_non_null(strstr(tutti_last_error(), "rank 0 (here:1) closed"));
        end();
    }
    free(into);
}

static void looked_at(void **state)
{
    uint64_t tag = 0;
    const void *data = NULL;
    size_t ready = 0;
    (void)state;
    open_and_send(BYTES, SHM_KIND_REGION);
    assert_int_equal(shm->peek(pair.endpoint[1], 0, &tag, &data, &ready), TUTTI_OK);
    assert_int_equal(ready, BYTES);
    assert_int_equal(shm->intact(pair.endpoint[1], 0), TUTTI_OK);
    shm->consume(pair.endpoint[1], 0, BYTES / 2);
    give_up();
    assert_int_equal(shm->intact(pair.endpoint[1], 0), TUTTI_ERR_PEER);
    assert_non_null(strstr(tutti_last_error(), "rank 0 (here:1) closed"));
    end();
}

/* What was copied on the way stays what it was, wherever it lies: how much goes into a tail is not
 * the same on every processor. */
static void passed_by_copy(void **state)
{
    static const struct {
        size_t bytes;
        enum shm_kind kind;
    } cases[] = {{SHM_TAIL_LEAST, SHM_KIND_TAIL}, {SHM_TAIL_BYTES + 1, SHM_KIND_PIECE}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t tag = 0;
        const void *data = NULL;
        size_t ready = 0;
        open_and_send(cases[i].bytes, cases[i].kind);
        assert_int_equal(shm->peek(pair.endpoint[1], 0, &tag, &data, &ready), TUTTI_OK);
        give_up();
        assert_int_equal(shm->intact(pair.endpoint[1], 0), TUTTI_OK);
        assert_true(ready == cases[i].bytes && *(const unsigned char *)data == 0x11);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copied),
        cmocka_unit_test(broken),
        cmocka_unit_test(looked_at),
        cmocka_unit_test(passed_by_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
