/* Calling NCCL's network plugins (net_plugin.h). The table of functions is the same in versions 8
 * to 11 but for what it has at its end and for the parameters of a few, which are unions here.
 * Sizes are int in version 8, contexts and profilers come with 10 and 11. Nobody offloads to a
 * device. */
#include "transport/ncclnet/net_plugin.h"

#include "base/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

typedef void net_logger(int level, unsigned long flags, const char *file, int line,
                        const char *format, ...);
typedef int net_profiler(void **handle, int type, void *parent, int64_t plugin, void *data);

/* What v10 and v11 say of a communicator. */
struct net_config {
    int traffic_class;
};

struct net_table {
    const char *name;
    union {
        int (*v8)(net_logger *);
        int (*v10)(net_logger *, net_profiler *);
        int (*v11)(void **, uint64_t, struct net_config *, net_logger *, net_profiler *);
    } init;
    int (*devices)(int *);
    int (*properties)(int, void *);
    union {
        int (*v8)(int, void *, void **);
        int (*v11)(void *, int, void *, void **);
    } listen;
    union {
        int (*v8)(int, void *, void **, void **);
        int (*v10)(int, struct net_config *, void *, void **, void **);
        int (*v11)(void *, int, void *, void **, void **);
    } connect;
    int (*accept)(void *, void **, void **);
    int (*register_memory)(void *, void *, size_t, int, void **);
    int (*register_dmabuf)(void *, void *, size_t, int, uint64_t, int, void **);
    int (*deregister_memory)(void *, void *);
    union {
        int (*v8)(void *, void *, int, int, void *, void **);
        int (*v9)(void *, void *, size_t, int, void *, void **);
        int (*v10)(void *, void *, size_t, int, void *, void *, void **);
    } send;
    union {
        int (*v8)(void *, int, void **, int *, int *, void **, void **);
        int (*v9)(void *, int, void **, size_t *, int *, void **, void **);
        int (*v10)(void *, int, void **, size_t *, int *, void **, void **, void **);
    } receive;
    int (*flush)(void *, int, void **, int *, void **, void **);
    int (*test)(void *, int *, int *);
    int (*close_send)(void *);
    int (*close_receive)(void *);
    int (*close_listen)(void *);
    int (*device_key)(void *, void *, void **);
    int (*consumed)(void *, int, void *);
    /* v9 */
    int (*make_virtual)(int *, void *);
    /* v11 */
    int (*finalize)(void *);
    int (*set_attributes)(void *, void *);
};

enum { OLDEST = 8, NEWEST = 11, UNDEFINED_CLASS = -1 };

static const struct net_table *net; /* the one that was taken */
static int net_version;
static pthread_mutex_t net_lock = PTHREAD_MUTEX_INITIALIZER;
static int net_begun; /* initialised, before version 11 once a process */

/* ---- what the plugin may call ---- */

static void plugin_log(int level, unsigned long flags, const char *file, int line,
                       const char *format, ...) __attribute__((format(printf, 5, 6)));
static void plugin_log(int level, unsigned long flags, const char *file, int line,
                       const char *format, ...)
{
    static const enum tti_log_level levels[] = {TTI_LOG_TRACE, TTI_LOG_INFO, TTI_LOG_WARN,
                                                TTI_LOG_INFO,  TTI_LOG_WARN, TTI_LOG_TRACE};
    char text[1024];
    va_list args;
    (void)flags;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    TTI_LOG(level >= 0 && level < 6 ? levels[level] : TTI_LOG_TRACE, "%s (%s:%d): %s",
            net ? net->name : "network plugin", file ? file : "?", line, text);
}

static int plugin_profile(void **handle, int type, void *parent, int64_t plugin, void *data)
{
    (void)handle, (void)type, (void)parent, (void)plugin, (void)data;
    return 0;
}

/* ---- taking one ---- */

static const struct net_table *net_find(void *object, int *version)
{
    char symbol[32];
    const struct net_table *found = NULL;
    *version = NEWEST + 1;
    while (!found && *version > OLDEST) {
        snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", --*version);
        found = dlsym(object, symbol);
    }
    return found;
}

bool tti_net_is(void *object)
{
    int version = 0;
    return net_find(object, &version) != NULL;
}

enum tutti_result tti_net_take(void *object, const char *path)
{
    int version = 0;
    const struct net_table *found = net_find(object, &version);
    pthread_mutex_lock(&net_lock);
    const char *other = net && net != found ? net->name : NULL;
    if (!other) {
        net = found;
        net_version = version;
    }
    pthread_mutex_unlock(&net_lock);
    if (other)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s: the network plugin %s is in use already; a process has one", path,
                        other);
    TTI_LOG(TTI_LOG_INFO, "network plugin %s (v%d) from %s", found->name, version, path);
    return TUTTI_OK;
}

const char *tti_net_name(void)
{
    return net ? net->name : NULL;
}

/* ---- a communicator ---- */

static int net_init(uint64_t number, void **context)
{
    struct net_config config = {UNDEFINED_CLASS};
    if (net_version >= 11)
        return net->init.v11(context, number, &config, plugin_log, plugin_profile);
    if (net_begun)
        return 0;
    int failed =
        net_version == 10 ? net->init.v10(plugin_log, plugin_profile) : net->init.v8(plugin_log);
    net_begun = !failed;
    return failed;
}

enum tutti_result tti_net_begin(uint64_t number, void **context, int *devices)
{
    int count = 0;
    *context = NULL;
    pthread_mutex_lock(&net_lock);
    int failed = net_init(number, context);
    if (!failed)
        failed = net->devices(&count);
    pthread_mutex_unlock(&net_lock);
    if (failed || count < 1)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "the network plugin %s finds no adapter here (result %d, %d adapters)",
                        net->name, failed, count);
    *devices = count;
    return TUTTI_OK;
}

void tti_net_end(void *context)
{
    pthread_mutex_lock(&net_lock); /* plugins need not expect two at once */
    if (net_version >= 11 && net->finalize)
        (void)net->finalize(context);
    pthread_mutex_unlock(&net_lock);
}

/* ---- connections ---- */

int tti_net_listen(void *context, int device, void *handle, void **listener)
{
    return net_version >= 11 ? net->listen.v11(context, device, handle, listener)
                             : net->listen.v8(device, handle, listener);
}

int tti_net_connect(void *context, int device, void *handle, void **comm)
{
    struct net_config config = {UNDEFINED_CLASS};
    void *offload = NULL;
    if (net_version >= 11)
        return net->connect.v11(context, device, handle, comm, &offload);
    if (net_version == 10)
        return net->connect.v10(device, &config, handle, comm, &offload);
    return net->connect.v8(device, handle, comm, &offload);
}

int tti_net_accept(void *listener, void **comm)
{
    void *offload = NULL;
    return net->accept(listener, comm, &offload);
}

int tti_net_register(void *comm, void *memory, size_t bytes, void **key)
{
    return net->register_memory(comm, memory, bytes, TTI_NET_HOST_MEMORY, key);
}

void tti_net_deregister(void *comm, void *key)
{
    (void)net->deregister_memory(comm, key);
}

int tti_net_send(void *comm, void *data, size_t bytes, void *key, void **request)
{
    enum { TAG = 0 };
    *request = NULL;
    if (net_version >= 10)
        return net->send.v10(comm, data, bytes, TAG, key, NULL, request);
    if (net_version == 9)
        return net->send.v9(comm, data, bytes, TAG, key, request);
    return net->send.v8(comm, data, (int)bytes, TAG, key, request);
}

int tti_net_receive(void *comm, void *data, size_t bytes, void *key, void **request)
{
    int tag = 0, size = (int)bytes;
    void *profile = NULL;
    *request = NULL;
    if (net_version >= 10)
        return net->receive.v10(comm, 1, &data, &bytes, &tag, &key, &profile, request);
    if (net_version == 9)
        return net->receive.v9(comm, 1, &data, &bytes, &tag, &key, request);
    return net->receive.v8(comm, 1, &data, &size, &tag, &key, request);
}

int tti_net_test(void *request, int *done, int *bytes)
{
    return net->test(request, done, bytes);
}

void tti_net_close(void *sender, void *receiver, void *listener)
{
    if (sender)
        (void)net->close_send(sender);
    if (receiver)
        (void)net->close_receive(receiver);
    if (listener)
        (void)net->close_listen(listener);
}
