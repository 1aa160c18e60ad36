/* A network plugin as vendors make them for NCCL, to try ours on: TCP over loopback, a connection
 * in each direction, messages with a length in front, up to 32 requests under way. Compiled once
 * for each version of the interface (NET_VERSION 8 to 11). Knows nothing of Tutti. */
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OK = 0, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, REMOTE_ERROR = 6, REQUESTS = 32, MAGIC = 77 };

#if NET_VERSION >= 9
typedef size_t net_size;
#else
typedef int net_size;
#endif

struct handle {
    struct sockaddr_in address;
};

struct request {
    struct connection *connection;
    char *data;
    uint32_t bytes; /* room, or length */
    uint32_t head;  /* what stands in front, as far as it has come */
    size_t moved;   /* of head and data together */
    int used, over;
};

/* Requests are served in order: `first` is the oldest that is not over. */
struct connection {
    int fd, sends, up;
    struct request request[REQUESTS];
    unsigned first, next;
};

static int begun;

static int set_up(void)
{
    begun++;
    return OK;
}

#if NET_VERSION >= 11
static int net_init(void **context, uint64_t number, void *config, void *log, void *profile)
{
    (void)number, (void)config, (void)log, (void)profile;
    *context = &begun;
    return set_up();
}
static int net_finalize(void *context)
{
    return context == &begun && begun-- > 0 ? OK : INTERNAL_ERROR;
}
#elif NET_VERSION == 10
static int net_init(void *log, void *profile)
{
    (void)log, (void)profile;
    return set_up();
}
#else
static int net_init(void *log)
{
    (void)log;
    return set_up();
}
#endif

static int net_devices(int *count)
{
    *count = 1;
    return begun ? OK : INTERNAL_ERROR;
}

static int listen_on(void *out, void **listener)
{
    struct handle handle = {
        .address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof handle.address;
    struct sockaddr *address = (struct sockaddr *)&handle.address;
    struct connection *made = calloc(1, sizeof *made);
    made->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (made->fd < 0 || bind(made->fd, address, bytes) || listen(made->fd, 1) ||
        getsockname(made->fd, address, &bytes))
        return SYSTEM_ERROR;
    memcpy(out, &handle, sizeof handle);
    *listener = made;
    return OK;
}

static int connect_to(void *in, void **comm)
{
    struct handle handle;
    struct connection *made = calloc(1, sizeof *made);
    memcpy(&handle, in, sizeof handle);
    made->sends = 1;
    made->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* loopback: at once */
    if (made->fd < 0 ||
        connect(made->fd, (struct sockaddr *)&handle.address, sizeof handle.address)) {
        free(made);
        return REMOTE_ERROR;
    }
    *comm = made;
    return OK;
}

#if NET_VERSION >= 11
static int net_listen(void *context, int device, void *handle, void **listener)
{
    return context == &begun && device == 0 ? listen_on(handle, listener) : INTERNAL_ERROR;
}
static int net_connect(void *context, int device, void *handle, void **comm, void **offload)
{
    (void)offload;
    return context == &begun && device == 0 ? connect_to(handle, comm) : INTERNAL_ERROR;
}
#else
static int net_listen(int device, void *handle, void **listener)
{
    return device == 0 ? listen_on(handle, listener) : INTERNAL_ERROR;
}
#if NET_VERSION == 10
static int net_connect(int device, void *config, void *handle, void **comm, void **offload)
{
    (void)offload;
    return device == 0 && config ? connect_to(handle, comm) : INTERNAL_ERROR;
}
#else
static int net_connect(int device, void *handle, void **comm, void **offload)
{
    (void)offload;
    return device == 0 ? connect_to(handle, comm) : INTERNAL_ERROR;
}
#endif
#endif

static int net_accept(void *listener, void **comm, void **offload)
{
    (void)offload;
    int fd = accept4(((struct connection *)listener)->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return errno == EAGAIN ? OK : SYSTEM_ERROR;
    struct connection *made = calloc(1, sizeof *made);
    made->fd = fd;
    *comm = made;
    return OK;
}

static int net_register(void *comm, void *memory, size_t bytes, int type, void **key)
{
    (void)comm, (void)memory, (void)bytes;
    *key = malloc(sizeof(int));
    *(int *)*key = MAGIC;
    return type == 1 ? OK : INTERNAL_ERROR;
}

static int net_deregister(void *comm, void *key)
{
    (void)comm;
    free(key);
    return OK;
}

static int begin(struct connection *c, void *data, net_size bytes, void *key, void **out)
{
    struct request *request = &c->request[c->next % REQUESTS];
    *out = NULL;
    if (!key || *(int *)key != MAGIC)
        return INTERNAL_ERROR;
    if (request->used) /* 32 are under way: not now */
        return OK;
    *request = (struct request){.connection = c, .data = data, .bytes = (uint32_t)bytes, .used = 1};
    request->head = request->bytes;
    c->next++;
    *out = request;
    return OK;
}

#if NET_VERSION >= 10
static int net_send(void *comm, void *data, net_size bytes, int tag, void *key, void *profile,
                    void **request)
{
    (void)tag, (void)profile;
    return begin(comm, data, bytes, key, request);
}
static int net_receive(void *comm, int n, void **data, net_size *bytes, int *tags, void **keys,
                       void **profiles, void **request)
{
    (void)tags, (void)profiles;
    return n == 1 ? begin(comm, data[0], bytes[0], keys[0], request) : INTERNAL_ERROR;
}
#else
static int net_send(void *comm, void *data, net_size bytes, int tag, void *key, void **request)
{
    (void)tag;
    return begin(comm, data, bytes, key, request);
}
static int net_receive(void *comm, int n, void **data, net_size *bytes, int *tags, void **keys,
                       void **request)
{
    (void)tags;
    return n == 1 ? begin(comm, data[0], bytes[0], keys[0], request) : INTERNAL_ERROR;
}
#endif

/* Move what goes; 1 when it is over, 0 when not yet, -1 for an end. */
static int serve(struct connection *c, struct request *r)
{
    for (;;) {
        char *at = r->moved < sizeof r->head ? (char *)&r->head + r->moved
                                             : r->data + r->moved - sizeof r->head;
        const size_t want = (r->moved < sizeof r->head ? 0 : r->head) + sizeof r->head - r->moved;
        if (want == 0)
            return 1;
        const ssize_t moved = c->sends ? send(c->fd, at, want, MSG_DONTWAIT | MSG_NOSIGNAL)
                                       : recv(c->fd, at, want, MSG_DONTWAIT);
        if (moved <= 0)
            return moved < 0 && errno == EAGAIN ? 0 : -1;
        r->moved += (size_t)moved;
        if (r->moved == sizeof r->head && r->head > r->bytes)
            return -1;
    }
}

static int net_test(void *object, int *done, int *bytes)
{
    struct request *asked = object;
    struct connection *c = asked->connection;
    while (c->first != c->next && !asked->over) {
        struct request *r = &c->request[c->first % REQUESTS];
        const int now = serve(c, r);
        if (now < 0)
            return REMOTE_ERROR;
        if (now == 0)
            break;
        r->over = 1;
        c->first++;
    }
    *done = asked->over;
    if (asked->over) {
        if (bytes)
            *bytes = (int)asked->head;
        asked->used = 0;
    }
    return OK;
}

static int net_close(void *object)
{
    struct connection *c = object;
    close(c->fd);
    free(c);
    return OK;
}

struct table {
    const char *name;
    void *functions[21];
};

__attribute__((visibility("default"))) extern struct table NET_SYMBOL;
struct table NET_SYMBOL = {"sockets",
                           {
                               (void *)net_init,
                               (void *)net_devices,
                               NULL,
                               (void *)net_listen,
                               (void *)net_connect,
                               (void *)net_accept,
                               (void *)net_register,
                               NULL,
                               (void *)net_deregister,
                               (void *)net_send,
                               (void *)net_receive,
                               NULL,
                               (void *)net_test,
                               (void *)net_close,
                               (void *)net_close,
                               (void *)net_close,
                               NULL,
                               NULL,
                               NULL,
#if NET_VERSION >= 11
                               (void *)net_finalize,
#endif
                           }};
