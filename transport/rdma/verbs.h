/* libibverbs, found at run time: the functions that this transport calls, by the names they have
 * there (without ibv_). What verbs.h has as inline functions (ibv_post_send, ibv_post_recv,
 * ibv_poll_cq, ibv_req_notify_cq) goes through the device's own table and needs no symbol.
 *
 * Only the header is needed to build; where it is missing, rdma_absent.c stands in. */
#ifndef TTI_TRANSPORT_RDMA_VERBS_H
#define TTI_TRANSPORT_RDMA_VERBS_H

#include "base/error.h"

#include <infiniband/verbs.h>

/* The types are those of the header, so that the compiler checks each call. */
#define TTI_VERBS_FUNCTIONS(F) \
    F(get_device_list)         \
    F(free_device_list)        \
    F(open_device)             \
    F(close_device)            \
    F(query_device)            \
    F(query_port)              \
    F(query_gid)               \
    F(alloc_pd)                \
    F(dealloc_pd)              \
    F(reg_mr)                  \
    F(dereg_mr)                \
    F(create_comp_channel)     \
    F(destroy_comp_channel)    \
    F(create_cq)               \
    F(resize_cq)               \
    F(destroy_cq)              \
    F(get_cq_event)            \
    F(ack_cq_events)           \
    F(create_qp)               \
    F(modify_qp)               \
    F(destroy_qp)              \
    F(get_async_event)         \
    F(ack_async_event)         \
    F(event_type_str)          \
    F(wc_status_str)           \
    F(fork_init)

struct tti_verbs {
#define VERBS_FIELD(name) __typeof__(ibv_##name) *name;
    TTI_VERBS_FUNCTIONS(VERBS_FIELD)
#undef VERBS_FIELD
    /* Libraries before rdma-core 34 lack it, and so does their header: NULL then. */
    struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova,
                                    int fd, int access);
};

/* The table, loaded once in a process. UNSUPPORTED, with what to install, where the library or the
 * kernel's side of it is missing; a machine without RDMA devices does not load the library. */
enum tutti_result tti_verbs_load(const struct tti_verbs **verbs);

#endif
