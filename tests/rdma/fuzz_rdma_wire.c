/* Everything that the RDMA transport reads of a peer's: its address, and the messages of the
 * control connection. What is accepted must say the same when it is written and read again, and any
 * two addresses must be matched alike from both ends. */
#include "transport/rdma/rdma_wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* Every port at most once on the side that has more, each pair of ports that exist. */
static void fuzz_match(const struct tti_rdma_advert *one, const struct tti_rdma_advert *other)
{
    struct tti_rdma_pair forth[TTI_RDMA_MAX_RAILS], back[TTI_RDMA_MAX_RAILS];
    int pairs = tti_rdma_match(one, other, forth);
    require(pairs <= (one->count > other->count ? one->count : other->count));
    for (int i = 0; i < pairs; i++)
        require(forth[i].lower < one->count && forth[i].higher < other->count);
    unsigned once = 0;
    const int carry = tti_rdma_prefer(one, other, forth, pairs);
    require(carry <= pairs && (carry > 0) == (pairs > 0));
    for (int i = 0; i < pairs; i++)
        once |= 1U << (one->count >= other->count ? forth[i].lower : forth[i].higher);
    require(__builtin_popcount(once) == pairs);
    require((tti_rdma_match(other, one, back) > 0) == (pairs > 0));
}

static void fuzz_advert(const uint8_t *data, size_t size)
{
    struct tti_rdma_advert advert, again;
    if (tti_rdma_get_advert(data, size, &advert))
        return;
    require(advert.count >= 1 && advert.count <= TTI_RDMA_MAX_RAILS);
    uint8_t *bytes = malloc(size);
    require(bytes && tti_rdma_put_advert(&advert, bytes) == size);
    require(!tti_rdma_get_advert(bytes, size, &again));
    require(again.control_bytes == advert.control_bytes);
    /* Against its own ports in another order. */
    for (int i = 0; i < advert.count; i++)
        again.port[i] = advert.port[advert.count - 1 - i];
    fuzz_match(&advert, &again);
    again.count = 1;
    fuzz_match(&advert, &again);
    free(bytes);
}

static void fuzz_hello(const uint8_t *data)
{
    struct tti_rdma_hello hello, second;
    uint8_t again[TTI_RDMA_HELLO_BYTES];
    if (tti_rdma_get_hello(data, &hello))
        return;
    require(hello.lanes <= TUTTI_MAX_LANES && hello.qps <= TTI_RDMA_MAX_QPS);
    tti_rdma_put_hello(&hello, again);
    require(!tti_rdma_get_hello(again, &second) && second.ring == hello.ring);
}

static void fuzz_word(const uint8_t *data)
{
    struct tti_rdma_word word, second;
    uint8_t again[TTI_RDMA_WORD_BYTES];
    if (tti_rdma_get_word(data, &word))
        return;
    require(word.qp < TTI_RDMA_MAX_QPS);
    tti_rdma_put_word(&word, again);
    require(!tti_rdma_get_word(again, &second) && second.number == word.number &&
            second.psn == word.psn && second.qp == word.qp && second.saying == word.saying &&
            second.trial == word.trial && (!word.trial || word.saying == TTI_RDMA_AGAIN));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tti_rdma_goodbye goodbye;
    fuzz_advert(data, size);
    if (size >= TTI_RDMA_HELLO_BYTES)
        fuzz_hello(data);
    if (size >= TTI_RDMA_READY_BYTES)
        (void)tti_rdma_get_ready(data);
    if (size >= TTI_RDMA_GOODBYE_BYTES)
        (void)tti_rdma_get_goodbye(data, &goodbye);
    if (size >= TTI_RDMA_WORD_BYTES)
        fuzz_word(data);
    return 0;
}
