/* A transport that reaches nobody, for the tests of plugin loading. PLUGIN_x plants one mistake. */
#include "tutti/plugin.h"

#include <stddef.h>

#ifndef PLUGIN_ABI
#define PLUGIN_ABI 0
#endif
#ifndef PLUGIN_SIZE
#define PLUGIN_SIZE 0
#endif
#ifndef PLUGIN_OLDER
#define PLUGIN_OLDER 0
#endif
#ifndef PLUGIN_MAP
#define PLUGIN_MAP 0
#endif
#ifndef PLUGIN_DEVICE
#define PLUGIN_DEVICE 0
#endif
#ifndef PLUGIN_NAME
#define PLUGIN_NAME 0
#endif
#ifndef PLUGIN_TABLE
#define PLUGIN_TABLE 0
#endif
#ifndef PLUGIN_OPERATION
#define PLUGIN_OPERATION 0
#endif
#ifndef PLUGIN_COMMIT
#define PLUGIN_COMMIT 0
#endif
#ifndef PLUGIN_SYMBOL
#define PLUGIN_SYMBOL 0
#endif

static enum tutti_result plugin_probe(const struct tutti_services *services)
{
    services->log(3, "the test plugin is looked at");
    return services->fail(TUTTI_ERR_UNSUPPORTED, "the test plugin never works");
}

static enum tutti_result plugin_open(const struct tutti_transport_env *env, void **transport)
{
    (void)transport;
    return env->services->fail(TUTTI_ERR_UNSUPPORTED, "the test plugin never opens");
}

static void plugin_nothing(void *object)
{
    (void)object;
}

static enum tutti_result plugin_no(void *object)
{
    (void)object;
    return TUTTI_ERR_UNSUPPORTED;
}

static enum tutti_result plugin_address(void *transport, void *address, size_t *bytes)
{
    (void)transport;
    (void)address;
    *bytes = 0;
    return TUTTI_OK;
}

static bool plugin_reaches(void *transport, const struct tutti_peer *peer)
{
    (void)transport;
    (void)peer;
    return false;
}

static enum tutti_result plugin_connect(void *transport, const struct tutti_peer *peer, int lanes,
                                        void **endpoint)
{
    (void)transport;
    (void)peer;
    (void)lanes;
    (void)endpoint;
    return TUTTI_ERR_UNSUPPORTED;
}

static enum tutti_result plugin_send(void *endpoint, int lane, uint64_t tag, const void *data,
                                     size_t bytes, size_t *accepted)
{
    (void)endpoint;
    (void)lane;
    (void)tag;
    (void)data;
    (void)bytes;
    (void)accepted;
    return TUTTI_ERR_UNSUPPORTED;
}

static uint64_t plugin_released(void *endpoint, int lane)
{
    (void)endpoint;
    (void)lane;
    return 0;
}

static enum tutti_result plugin_peek(void *endpoint, int lane, uint64_t *tag, const void **data,
                                     size_t *bytes)
{
    (void)endpoint;
    (void)lane;
    (void)tag;
    (void)data;
    (void)bytes;
    return TUTTI_ERR_UNSUPPORTED;
}

static void plugin_consume(void *endpoint, int lane, size_t bytes)
{
    (void)endpoint;
    (void)lane;
    (void)bytes;
}

static size_t plugin_reserve(void *endpoint, int lane, size_t want, void **room)
{
    (void)endpoint;
    (void)lane;
    (void)want;
    (void)room;
    return 0;
}

static int plugin_fd(void *transport)
{
    (void)transport;
    return -1;
}

static bool plugin_arm(void *transport)
{
    (void)transport;
    return true;
}

/* The table as it was when it ended with disarm. */
enum { LEAST = offsetof(struct tutti_transport_ops, offer) };

static const struct tutti_transport_ops plugin_ops = {
    .abi = PLUGIN_ABI ? TUTTI_TRANSPORT_ABI + 6 : TUTTI_TRANSPORT_ABI,
    .size = PLUGIN_OLDER  ? LEAST
            : PLUGIN_SIZE ? LEAST - 8
                          : sizeof(struct tutti_transport_ops),
    .name = PLUGIN_NAME ? "Not A Name" : "testplug",
    .rank = 15,
    .probe = plugin_probe,
    .open = plugin_open,
    .close = plugin_nothing,
    .address = plugin_address,
    .reaches = plugin_reaches,
    .connect = plugin_connect,
    .advance = plugin_no,
    .disconnect = plugin_nothing,
    .send = plugin_send,
    .released = plugin_released,
    .reserve = PLUGIN_COMMIT ? plugin_reserve : NULL,
    .peek = plugin_peek,
    .consume = PLUGIN_OPERATION ? NULL : plugin_consume,
    .progress = plugin_no,
    .fd = plugin_fd,
    .arm = plugin_arm,
    .disarm = plugin_nothing,
    .unmap = PLUGIN_MAP ? plugin_nothing : NULL,
    .device_send = PLUGIN_DEVICE ? plugin_send : NULL,
};

#if PLUGIN_SYMBOL
#define PLUGIN_ENTRY not_tutti_transport
#else
#define PLUGIN_ENTRY tutti_transport
#endif

TUTTI_API const struct tutti_transport_ops *PLUGIN_ENTRY(void);
const struct tutti_transport_ops *PLUGIN_ENTRY(void)
{
    return PLUGIN_TABLE ? NULL : &plugin_ops;
}
