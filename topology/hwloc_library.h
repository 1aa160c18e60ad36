/* hwloc, loaded at run time: one build serves machines with and without it.
 *
 * Its header is needed to compile (TTI_HWLOC), its library only when a machine is looked at. The
 * layout of hwloc_obj is part of the ABI that libhwloc.so.15 (hwloc 2.x) promises. */
#ifndef TTI_TOPOLOGY_HWLOC_LIBRARY_H
#define TTI_TOPOLOGY_HWLOC_LIBRARY_H

#include "base/error.h"

#include <hwloc.h>

/* The functions that we call: name, result, arguments. Those that the header only has inline are
 * not here. */
#define TTI_HWLOC_FUNCTIONS(X)                                                               \
    X(hwloc_get_api_version, unsigned, (void))                                               \
    X(hwloc_topology_init, int, (hwloc_topology_t *))                                        \
    X(hwloc_topology_destroy, void, (hwloc_topology_t))                                      \
    X(hwloc_topology_load, int, (hwloc_topology_t))                                          \
    X(hwloc_topology_set_xml, int, (hwloc_topology_t, const char *))                         \
    X(hwloc_topology_set_synthetic, int, (hwloc_topology_t, const char *))                   \
    X(hwloc_topology_set_components, int, (hwloc_topology_t, unsigned long, const char *))   \
    X(hwloc_topology_set_io_types_filter, int, (hwloc_topology_t, enum hwloc_type_filter_e)) \
    X(hwloc_get_obj_by_depth, hwloc_obj_t, (hwloc_topology_t, int, unsigned))

struct tti_hwloc {
#define TTI_HWLOC_MEMBER(name, result, arguments) result(*name) arguments;
    TTI_HWLOC_FUNCTIONS(TTI_HWLOC_MEMBER)
#undef TTI_HWLOC_MEMBER
};

/* The library, loaded by the first call and kept; TUTTI_ERR_UNSUPPORTED when it is not there. */
enum tutti_result tti_hwloc_load(const struct tti_hwloc **hwloc);

#endif
