/* The transport of a build without infiniband/verbs.h: it says so. The real one is rdma.c. */
#include "base/error.h"
#include "tutti/plugin.h"

#include <stdbool.h>

extern const struct tutti_transport_ops tti_rdma_ops;

static enum tutti_result absent_probe(const struct tutti_services *services)
{
    return services->fail(TUTTI_ERR_UNSUPPORTED,
                          "rdma: this build has no RDMA, since infiniband/verbs.h was not found; "
                          "install libibverbs-dev and build again");
}

static enum tutti_result absent_open(const struct tutti_transport_env *env, void **transport)
{
    (void)transport;
    return absent_probe(env->services);
}

const struct tutti_transport_ops tti_rdma_ops = {
    .abi = TUTTI_TRANSPORT_ABI,
    .size = sizeof tti_rdma_ops,
    .name = "rdma",
    .rank = 30,
    .probe = absent_probe,
    .open = absent_open, /* and nothing else can be reached */
};
