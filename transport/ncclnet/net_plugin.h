/* A network plugin made for NCCL (libnccl-net*.so), behind one interface for its versions 8 to 11.
 * Functions return 0 or one of NCCL's result codes. Next: net_plugin.c, ncclnet.c. */
#ifndef TTI_TRANSPORT_NET_PLUGIN_H
#define TTI_TRANSPORT_NET_PLUGIN_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TTI_NET_HANDLE_BYTES = 128, /* of what `listen` gives */
    TTI_NET_HOST_MEMORY = 1,    /* a kind of memory, for registering */
};

/* Does the shared object export a table that we know? */
bool tti_net_is(void *object);
/* Take the plugin of a shared object that dlopen gave: the newest table that it exports and we
 * know. One plugin a process. ARGUMENT when it exports none, or when another one was taken before.
 */
enum tutti_result tti_net_take(void *object, const char *path);
/* Its name; NULL when none was taken. */
const char *tti_net_name(void);

/* For one communicator; `device` counts its network adapters. */
enum tutti_result tti_net_begin(uint64_t number, void **context, int *devices);
void tti_net_end(void *context);

/* Those that follow never block. A NULL *comm or *request with result 0 means: not yet, call again.
 */
int tti_net_listen(void *context, int device, void *handle, void **listener);
int tti_net_connect(void *context, int device, void *handle, void **comm);
int tti_net_accept(void *listener, void **comm);
int tti_net_register(void *comm, void *memory, size_t bytes, void **key);
void tti_net_deregister(void *comm, void *key);
int tti_net_send(void *comm, void *data, size_t bytes, void *key, void **request);
int tti_net_receive(void *comm, void *data, size_t bytes, void *key, void **request);
int tti_net_test(void *request, int *done, int *bytes);
void tti_net_close(void *sender, void *receiver, void *listener); /* each may be NULL */

#endif
