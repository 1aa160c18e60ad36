/* The transports by name (transport/registry.h): the table of those compiled in, and the door for
 * those in shared objects. A new transport is one line in `built_in` and one in CMakeLists.txt. */
#include "transport/registry.h"

#include "base/log.h"
#include "transport/ncclnet/net_plugin.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

extern const struct tutti_transport_ops tti_inproc_ops;
extern const struct tutti_transport_ops tti_shm_ops;
extern const struct tutti_transport_ops tti_rdma_ops;
extern const struct tutti_transport_ops tti_tcp_ops;
extern const struct tutti_transport_ops tti_fault_ops;
extern const struct tutti_transport_ops tti_ncclnet_ops;
void tti_shm_prepare(void);

/* Best first. */
static const struct tutti_transport_ops *const built_in[] = {
    &tti_inproc_ops, &tti_shm_ops,   &tti_rdma_ops,
    &tti_tcp_ops,    &tti_fault_ops, /* works only where TUTTI_FAULT says what is to go wrong */
};

const struct tutti_transport_ops *tti_transport_at(int index)
{
    if (index < 0 || index >= (int)(sizeof built_in / sizeof built_in[0]))
        return NULL;
    return built_in[index];
}

/* ---- services ------------------------------------------------------------------------------- */

static enum tutti_result service_fail(enum tutti_result code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void service_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

static enum tutti_result service_fail(enum tutti_result code, const char *format, ...)
{
    char text[TTI_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return TTI_FAIL(code, "%s", text);
}

static void service_log(int level, const char *format, ...)
{
    char text[TTI_ERROR_TEXT_BYTES];
    if (level < TTI_LOG_ERROR || level > TTI_LOG_TRACE)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    TTI_LOG((enum tti_log_level)level, "%s", text);
}

const struct tutti_services *tti_transport_services(void)
{
    static const struct tutti_services services = {
        .size = sizeof services, .fail = service_fail, .log = service_log};
    return &services;
}

void tti_transport_prepare(void)
{
    tti_shm_prepare();
}

/* ---- plugins -------------------------------------------------------------------------------- */

/* The first published table ended with disarm. */
static const size_t TABLE_LEAST = offsetof(struct tutti_transport_ops, disarm) +
                                  sizeof(((struct tutti_transport_ops *)0)->disarm);

/* Where a table ends that has the optional operations of one kind. */
static const size_t TABLE_MAPS = offsetof(struct tutti_transport_ops, withdraw) +
                                 sizeof(((struct tutti_transport_ops *)0)->withdraw);
static const size_t TABLE_MEMORY = offsetof(struct tutti_transport_ops, memory) +
                                   sizeof(((struct tutti_transport_ops *)0)->memory);
static const size_t TABLE_AWAIT =
    offsetof(struct tutti_transport_ops, await) + sizeof(((struct tutti_transport_ops *)0)->await);
static const size_t TABLE_LINE =
    offsetof(struct tutti_transport_ops, line) + sizeof(((struct tutti_transport_ops *)0)->line);
static const size_t TABLE_COPIES = offsetof(struct tutti_transport_ops, copies) +
                                   sizeof(((struct tutti_transport_ops *)0)->copies);
static const size_t TABLE_LEND =
    offsetof(struct tutti_transport_ops, lend) + sizeof(((struct tutti_transport_ops *)0)->lend);

static const size_t TABLE_DEVICE = offsetof(struct tutti_transport_ops, device_send) +
                                   sizeof(((struct tutti_transport_ops *)0)->device_send);

static const size_t TABLE_READS =
    offsetof(struct tutti_transport_ops, reads) + sizeof(((struct tutti_transport_ops *)0)->reads);

static const size_t TABLE_INTACT = offsetof(struct tutti_transport_ops, intact) +
                                   sizeof(((struct tutti_transport_ops *)0)->intact);

static const size_t TABLE_ABANDONED = offsetof(struct tutti_transport_ops, abandoned) +
                                      sizeof(((struct tutti_transport_ops *)0)->abandoned);

static bool registry_has(const struct tutti_transport_ops *ops, size_t end)
{
    return ops->size >= end;
}

/* The name of an operation of which others are there that need it, or NULL. */
static const char *registry_incomplete(const struct tutti_transport_ops *ops)
{
    if (!ops->reserve != !ops->commit)
        return ops->reserve ? "commit" : "reserve";
    if (registry_has(ops, TABLE_MAPS) && (ops->offer || ops->map || ops->unmap || ops->withdraw)) {
        if (!ops->offer || !ops->map)
            return !ops->offer ? "offer" : "map";
        if (!ops->unmap || !ops->withdraw)
            return !ops->unmap ? "unmap" : "withdraw";
    }
    if (registry_has(ops, TABLE_DEVICE) &&
        (ops->device_register || ops->device_forget || ops->device_send)) {
        if (!ops->device_register || !ops->device_forget)
            return !ops->device_register ? "device_register" : "device_forget";
        return !ops->device_send ? "device_send" : NULL;
    }
    return NULL;
}

/* The name of a required operation that `ops` lacks, or NULL. */
static const char *registry_missing(const struct tutti_transport_ops *ops)
{
    const struct {
        bool there;
        const char *name;
    } required[] = {
        {ops->probe, "probe"},       {ops->open, "open"},
        {ops->close, "close"},       {ops->address, "address"},
        {ops->reaches, "reaches"},   {ops->connect, "connect"},
        {ops->advance, "advance"},   {ops->disconnect, "disconnect"},
        {ops->send, "send"},         {ops->released, "released"},
        {ops->peek, "peek"},         {ops->consume, "consume"},
        {ops->progress, "progress"}, {ops->fd, "fd"},
        {ops->arm, "arm"},           {ops->disarm, "disarm"},
    };
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++)
        if (!required[i].there)
            return required[i].name;
    return registry_incomplete(ops);
}

bool tti_transport_sends_device(const struct tutti_transport_ops *ops)
{
    return registry_has(ops, TABLE_DEVICE) && ops->device_send != NULL;
}

bool tti_transport_maps(const struct tutti_transport_ops *ops)
{
    return registry_has(ops, TABLE_MAPS) && ops->offer != NULL;
}

tti_transport_await *tti_transport_awaits(const struct tutti_transport_ops *ops)
{
    return registry_has(ops, TABLE_AWAIT) ? ops->await : NULL;
}

void tti_transport_memory(const struct tutti_transport_ops *ops, void *transport,
                          struct tutti_memory *memory)
{
    if (registry_has(ops, TABLE_MEMORY) && ops->memory)
        ops->memory(transport, memory);
}

size_t tti_transport_copies(const struct tutti_transport_ops *ops, void *endpoint)
{
    return registry_has(ops, TABLE_COPIES) && ops->copies ? ops->copies(endpoint) : 0;
}

tti_transport_intact *tti_transport_intacts(const struct tutti_transport_ops *ops)
{
    return registry_has(ops, TABLE_INTACT) ? ops->intact : NULL;
}

tti_transport_abandoned *tti_transport_abandons(const struct tutti_transport_ops *ops)
{
    return registry_has(ops, TABLE_ABANDONED) ? ops->abandoned : NULL;
}

tti_transport_send *tti_transport_lends(const struct tutti_transport_ops *ops)
{
    return registry_has(ops, TABLE_LEND) && ops->lend ? ops->lend : ops->send;
}

double tti_transport_line(const struct tutti_transport_ops *ops, void *transport, uint64_t *way)
{
    return registry_has(ops, TABLE_LINE) && ops->line ? ops->line(transport, way) : 0;
}

uint64_t tti_transport_reads(const struct tutti_transport_ops *ops, void *transport)
{
    return registry_has(ops, TABLE_READS) && ops->reads ? ops->reads(transport) : 0;
}

static bool registry_good_name(const char *name)
{
    if (!name || !*name || strlen(name) > 31)
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == strlen(name);
}

static enum tutti_result registry_check(const char *path, const struct tutti_transport_ops *ops)
{
    if (!ops)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "plugin %s: tutti_transport() gave no table", path);
    if (ops->abi != TUTTI_TRANSPORT_ABI)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "plugin %s is of transport ABI %u, this library has %d; rebuild it with "
                        "this library's tutti/plugin.h",
                        path, ops->abi, TUTTI_TRANSPORT_ABI);
    if (ops->size < TABLE_LEAST)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "plugin %s: its table has %u bytes, the smallest that can be has %zu; "
                        "rebuild it with this library's tutti/plugin.h",
                        path, ops->size, TABLE_LEAST);
    if (!registry_good_name(ops->name))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "plugin %s: a transport's name is 1 to 31 of a-z 0-9 _ -", path);
    const char *missing = registry_missing(ops);
    if (missing)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "plugin %s: transport %s lacks the required operation %s", path, ops->name,
                        missing);
    return TUTTI_OK;
}

enum tutti_result tti_transport_load(const char *path, const struct tutti_transport_ops **ops)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "plugin %s cannot be loaded: %s", path, dlerror());
    tutti_transport_entry *entry = NULL;
    void *symbol = dlsym(object, "tutti_transport");
    if (!symbol && tti_net_is(object)) {
        enum tutti_result result = tti_net_take(object, path);
        if (result == TUTTI_OK)
            *ops = &tti_ncclnet_ops;
        else
            dlclose(object);
        return result;
    }
    if (!symbol) {
        dlclose(object);
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "plugin %s is no transport: it does not export tutti_transport, nor a "
                        "network of NCCL's (ncclNetPlugin_v8 to v11)",
                        path);
    }
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from an object to a function */
    const struct tutti_transport_ops *table = entry();
    enum tutti_result result = registry_check(path, table);
    if (result != TUTTI_OK) {
        dlclose(object);
        return result;
    }
    *ops = table; /* and the object stays loaded: tables are referred to until the process ends */
    return TUTTI_OK;
}

/* ---- selection ------------------------------------------------------------------------------ */

struct registry_list {
    const struct tutti_transport_ops *ops[TTI_MAX_TRANSPORTS];
    int count;
};

/* Insert by preference; equal preferences stay in order of arrival. */
static enum tutti_result registry_add(struct registry_list *list,
                                      const struct tutti_transport_ops *ops)
{
    for (int i = 0; i < list->count; i++) {
        if (list->ops[i] == ops)
            return TUTTI_OK;
        if (strcmp(list->ops[i]->name, ops->name) == 0)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "two different transports are named \"%s\"",
                            ops->name);
    }
    if (list->count == TTI_MAX_TRANSPORTS)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "more than %d transports", TTI_MAX_TRANSPORTS);
    int at = list->count++;
    for (; at > 0 && list->ops[at - 1]->rank > ops->rank; at--)
        list->ops[at] = list->ops[at - 1];
    list->ops[at] = ops;
    return TUTTI_OK;
}

/* Next item of a list separated by `separator` into `item`; false at its end. */
static bool registry_next(const char **list, char separator, char *item, size_t room, bool *fits)
{
    while (**list == separator)
        (*list)++;
    const char *end = strchrnul(*list, separator);
    size_t bytes = (size_t)(end - *list);
    *fits = bytes < room;
    snprintf(item, room, "%.*s", (int)(bytes < room ? bytes : room - 1), *list);
    *list = end;
    return bytes > 0;
}

static enum tutti_result registry_load_all(const char *plugins, struct registry_list *known)
{
    char path[4096];
    bool fits = true;
    for (int i = 0; tti_transport_at(i); i++)
        TTI_TRY(registry_add(known, tti_transport_at(i)));
    while (plugins && registry_next(&plugins, ':', path, sizeof path, &fits)) {
        const struct tutti_transport_ops *ops = NULL;
        if (!fits)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "plugin path %.60s... is too long", path);
        TTI_TRY(tti_transport_load(path, &ops));
        enum tutti_result result = registry_add(known, ops);
        if (result != TUTTI_OK)
            return TTI_CONTEXT(result, "plugin %s", path);
    }
    return TUTTI_OK;
}

static enum tutti_result registry_by_name(const struct registry_list *known, const char *name,
                                          const struct tutti_transport_ops **ops)
{
    char names[TTI_MAX_TRANSPORTS * 34] = "";
    for (int i = 0; i < known->count; i++) {
        if (strcmp(known->ops[i]->name, name) == 0) {
            *ops = known->ops[i];
            return TUTTI_OK;
        }
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", known->ops[i]->name);
    }
    return TTI_FAIL(TUTTI_ERR_ARGUMENT, "unknown transport \"%s\"; known are: %s", name, names);
}

/* The named ones that work, in order of preference. */
static enum tutti_result registry_choose(const struct registry_list *known, const char *names,
                                         struct registry_list *chosen)
{
    char name[64];
    bool fits = true;
    while (registry_next(&names, ',', name, sizeof name, &fits)) {
        const struct tutti_transport_ops *ops = NULL;
        TTI_TRY(registry_by_name(known, name, &ops));
        enum tutti_result result = ops->probe(tti_transport_services());
        if (result != TUTTI_OK)
            return TTI_CONTEXT(result, "transport %s was asked for", name);
        TTI_TRY(registry_add(chosen, ops));
    }
    if (chosen->count == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "the list of transports names none");
    return TUTTI_OK;
}

enum tutti_result tti_transport_select(const char *names, const char *plugins,
                                       const struct tutti_transport_ops *list[TTI_MAX_TRANSPORTS],
                                       int *count)
{
    struct registry_list known = {.count = 0}, chosen = {.count = 0};
    TTI_TRY(registry_load_all(plugins, &known));
    if (names && *names) {
        TTI_TRY(registry_choose(&known, names, &chosen));
    } else {
        for (int i = 0; i < known.count; i++)
            if (known.ops[i]->probe(tti_transport_services()) == TUTTI_OK)
                TTI_TRY(registry_add(&chosen, known.ops[i]));
            else
                TTI_LOG(TTI_LOG_INFO, "transport %s is left out: %s", known.ops[i]->name,
                        tti_error_text());
        if (chosen.count == 0)
            return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "no transport works on this machine");
    }
    memcpy(list, chosen.ops, sizeof chosen.ops);
    *count = chosen.count;
    return TUTTI_OK;
}
