/* Registration of GPUs' memory (transport/rdma/rdma_device.c) with verbs made up here: by dmabuf,
 * by address, refused; what is found, forgotten and given back; and while another thread registers.
 */
#include "tests/tutti_cmocka.h"
#include "transport/rdma/rdma.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RAILS = 2, OFFSET = 100, BYTES = 5000 };

/* ---- verbs ---- */

static struct {
    atomic_int alive, descriptors;
    int by_dmabuf, by_address;
    int dmabuf_error, address_error; /* of the last rail; 0: none */
    enum tutti_result exports;
    uint64_t offset, iova;
    size_t bytes;
} made_up;

static struct ibv_mr *mr_new(const struct ibv_pd *pd, int error, uintptr_t address, size_t bytes)
{
    static atomic_uint keys;
    if (error && pd->handle == RAILS - 1) {
        errno = error;
        return NULL;
    }
    struct ibv_mr *mr = calloc(1, sizeof *mr);
    mr->addr = (void *)address;
    mr->length = bytes;
    mr->lkey = ++keys;
    atomic_fetch_add(&made_up.alive, 1);
    return mr;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *base, size_t bytes, int access)
{
    assert_int_equal(access, 0);
    made_up.by_address++;
    return mr_new(pd, made_up.address_error, (uintptr_t)base, bytes);
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova,
                                    int fd, int access)
{
    assert_int_equal(access, 0);
    assert_int_not_equal(fcntl(fd, F_GETFD), -1);
    made_up.offset = offset;
    made_up.iova = iova;
    made_up.bytes = bytes;
    made_up.by_dmabuf++;
    return mr_new(pd, made_up.dmabuf_error, iova, bytes);
}

static int dereg_mr(struct ibv_mr *mr)
{
    atomic_fetch_sub(&made_up.alive, 1);
    free(mr);
    return 0;
}

static enum tutti_result dmabuf(const struct tutti_device_memory *memory, int *fd, uint64_t *offset)
{
    (void)memory;
    if (made_up.exports != TUTTI_OK)
        return TTI_FAIL(made_up.exports, "no dmabuf of this memory");
    *fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    *offset = OFFSET;
    return TUTTI_OK;
}

/* ---- a transport with nothing but rails ---- */

static struct tti_verbs verbs;
static struct ibv_pd domains[RAILS];
static struct tti_rdma_transport transport;

static int begin(void **state)
{
    (void)state;
    memset(&made_up, 0, sizeof made_up);
    memset(&transport, 0, sizeof transport);
    verbs =
        (struct tti_verbs){.reg_mr = reg_mr, .dereg_mr = dereg_mr, .reg_dmabuf_mr = reg_dmabuf_mr};
    transport.verbs = &verbs;
    transport.rails = RAILS;
    for (int r = 0; r < RAILS; r++) {
        domains[r].handle = (uint32_t)r;
        transport.rail[r].pd = &domains[r];
        strcpy(transport.rail[r].device, r ? "made_up_1" : "made_up_0");
    }
    pthread_mutex_init(&transport.device_lock, NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tti_rdma_device_free(&transport);
    pthread_mutex_destroy(&transport.device_lock);
    return made_up.alive; /* nothing is left */
}

static char room[3 * BYTES], *const memory = room + BYTES;

static enum tutti_result registers(const char *base, uint64_t id)
{
    const struct tutti_device_memory m = {
        .size = sizeof m, .base = base, .bytes = BYTES, .id = id, .dmabuf = dmabuf};
    return tti_rdma_device_register(&transport, &m);
}

static uint32_t key(const char *at, size_t bytes)
{
    struct tti_rdma_memory found;
    return tti_rdma_device_find(&transport, at, bytes, &found) ? found.mr[RAILS - 1]->lkey : 0;
}

static int descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 64; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

/* ---- the tests ---- */

static void by_dmabuf(void **state)
{
    (void)state;
    const int before = descriptors();
    assert_int_equal(registers(memory, 1), TUTTI_OK);
    assert_int_equal(descriptors(), before);
    assert_int_equal(made_up.by_dmabuf, RAILS);
    assert_int_equal(made_up.by_address, 0);
    assert_int_equal(made_up.offset, OFFSET);
    assert_int_equal(made_up.bytes, BYTES);
    assert_true(made_up.iova == (uintptr_t)memory); /* work requests name the device's address */
    assert_true(key(memory, BYTES) != 0 && key(memory + BYTES - 1, 1) != 0);
    assert_int_equal(key(memory + BYTES - 1, 2), 0);
    assert_int_equal(key(memory + BYTES, 1), 0);
    assert_int_equal(key(memory - 1, 1), 0);
}

static void falls_back_to_the_address(void **state)
{
    (void)state;
    made_up.dmabuf_error = EOPNOTSUPP;
    assert_int_equal(registers(memory, 1), TUTTI_OK);
    assert_int_equal(made_up.by_dmabuf, RAILS); /* the last one refused, ... */
    assert_int_equal(made_up.by_address, RAILS);
    assert_int_equal(made_up.alive, RAILS); /* ... and what the first had made is gone */
    verbs.reg_dmabuf_mr = NULL;
    assert_int_equal(registers(memory + BYTES, 2), TUTTI_OK);
    assert_int_equal(made_up.by_dmabuf, RAILS);
    assert_int_equal(made_up.by_address, 2 * RAILS);
}

static void refused(void **state)
{
    (void)state;
    made_up.dmabuf_error = EOPNOTSUPP;
    made_up.address_error = EFAULT;
    assert_int_equal(registers(memory, 1), TUTTI_ERR_UNSUPPORTED);
    const char *said[] = {"ibv_reg_dmabuf_mr with device made_up_1: Operation not supported",
                          "nvidia-peermem", "Bad address"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (!strstr(tti_error_text(), said[i]))
            fail_msg("\"%s\" does not say \"%s\"", tti_error_text(), said[i]);
    assert_int_equal(made_up.alive, 0);
    assert_int_equal(key(memory, 1), 0);
    made_up.exports = TUTTI_ERR_UNSUPPORTED;
    assert_int_equal(registers(memory, 1), TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tti_error_text(), "no dmabuf of this memory"));
    verbs.reg_dmabuf_mr = NULL;
    assert_int_equal(registers(memory, 1), TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tti_error_text(), "no ibv_reg_dmabuf_mr"));
}

/* Another allocation at the same address: never by the key of the one that is gone. */
static void forgotten(void **state)
{
    (void)state;
    assert_int_equal(registers(memory, 1), TUTTI_OK);
    assert_int_equal(registers(memory + BYTES, 2), TUTTI_OK);
    const uint32_t first = key(memory, 1), second = key(memory + BYTES, 1);
    tti_rdma_device_forget(&transport, 7); /* nobody's */
    tti_rdma_device_forget(&transport, 1);
    assert_int_equal(made_up.alive, RAILS);
    assert_int_equal(key(memory, 1), 0);
    assert_int_equal(key(memory + BYTES, 1), second);
    assert_int_equal(registers(memory, 3), TUTTI_OK);
    assert_true(key(memory, 1) != 0 && key(memory, 1) != first);
}

static atomic_bool over;
static void *comes_and_goes(void *argument)
{
    (void)argument;
    for (uint64_t id = 2; id < 2000; id++) {
        (void)registers(memory + BYTES, id);
        tti_rdma_device_forget(&transport, id);
    }
    atomic_store(&over, true);
    return NULL;
}

static void while_another_registers(void **state)
{
    (void)state;
    pthread_t other;
    atomic_store(&over, false);
    assert_int_equal(registers(memory, 1), TUTTI_OK);
    const uint32_t mine = key(memory, 1);
    assert_int_equal(pthread_create(&other, NULL, comes_and_goes, NULL), 0);
    while (!atomic_load(&over))
        assert_int_equal(key(memory, BYTES), mine);
    pthread_join(other, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(by_dmabuf, begin, end),
        cmocka_unit_test_setup_teardown(falls_back_to_the_address, begin, end),
        cmocka_unit_test_setup_teardown(refused, begin, end),
        cmocka_unit_test_setup_teardown(forgotten, begin, end),
        cmocka_unit_test_setup_teardown(while_another_registers, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
