/* The transports by name: those compiled in, and those loaded from shared objects. */
#ifndef TTI_TRANSPORT_REGISTRY_H
#define TTI_TRANSPORT_REGISTRY_H

#include "base/error.h"
#include "tutti/plugin.h"

#include <stdbool.h>

enum { TTI_MAX_TRANSPORTS = 16 };

/* Transport number `index` of those compiled in, best first; NULL past the end. */
const struct tutti_transport_ops *tti_transport_at(int index);

/* Does it have the operations by which a peer reads and writes memory itself (offer, map, ...)? */
bool tti_transport_maps(const struct tutti_transport_ops *ops);

/* ... and those by which it sends out of a GPU's memory (device_register, ...)? */
bool tti_transport_sends_device(const struct tutti_transport_ops *ops);
/* Its operation `await`, or NULL. */
typedef bool tti_transport_await(void *endpoint, int lane, unsigned turns);
tti_transport_await *tti_transport_awaits(const struct tutti_transport_ops *ops);
/* Add what an open transport holds; nothing where its table does not tell. */
void tti_transport_memory(const struct tutti_transport_ops *ops, void *transport,
                          struct tutti_memory *memory);

/* What its table's `line` says; 0 where it has none. */
double tti_transport_line(const struct tutti_transport_ops *ops, void *transport, uint64_t *way);
/* What its table's `reads` says; 0 where it has none. */
uint64_t tti_transport_reads(const struct tutti_transport_ops *ops, void *transport);
/* What its table's `copies` says; 0 where it has none. */
size_t tti_transport_copies(const struct tutti_transport_ops *ops, void *endpoint);
/* Its operation `intact`, or NULL. */
typedef enum tutti_result tti_transport_intact(void *endpoint, int lane);
tti_transport_intact *tti_transport_intacts(const struct tutti_transport_ops *ops);
/* Its operation `abandoned`, or NULL. */
typedef enum tutti_result tti_transport_abandoned(void *endpoint);
tti_transport_abandoned *tti_transport_abandons(const struct tutti_transport_ops *ops);
/* Its operation `lend`, or `send`. */
typedef enum tutti_result tti_transport_send(void *endpoint, int lane, uint64_t tag,
                                             const void *data, size_t bytes, size_t *accepted);
tti_transport_send *tti_transport_lends(const struct tutti_transport_ops *ops);

/* The services that plugins are given. */
const struct tutti_services *tti_transport_services(void);

/* Load one plugin and check its table (ABI, size, name, required operations). A plugin stays loaded
 * until the process ends; loading it again gives the same table. Errors: ARGUMENT with the path and
 * what is wrong with it. */
enum tutti_result tti_transport_load(const char *path, const struct tutti_transport_ops **ops);

/* What is cheap only while the process has one thread: registering for membarrier takes 10 to 20 ms
 * afterwards. Call it before starting threads; not needed for anything to work. */
void tti_transport_prepare(void);

/* The transports that a communicator may use, in order of preference: `names` (comma list; NULL or
 * "" means all, best first) out of those compiled in and those of `plugins` (colon list of paths,
 * may be NULL). Transports whose probe fails are left out when `names` is empty, and are an error
 * when named. An unknown name is an error that lists the known ones. */
enum tutti_result tti_transport_select(const char *names, const char *plugins,
                                       const struct tutti_transport_ops *list[TTI_MAX_TRANSPORTS],
                                       int *count);

#endif
