/* NVIDIA's management library, loaded at run time: own declarations of the few functions that are
 * called, as the driver's libnvidia-ml.so.1 exports them. No header of NVIDIA's is needed to build,
 * and where there is no driver nothing is lost but what it would have told. */
#ifndef TTI_TOPOLOGY_NVML_LIBRARY_H
#define TTI_TOPOLOGY_NVML_LIBRARY_H

#include "base/error.h"

struct tti_nvml_device; /* nvmlDevice_t points to one */

enum {
    TTI_NVML_SUCCESS = 0,
    TTI_NVML_DRIVER_NOT_LOADED = 9,
    TTI_NVML_LINKS = 36, /* more than any GPU has */
    TTI_NVML_P2P_READ = 0,
    TTI_NVML_FIELD_NVLINK_MBPS = 90, /* of each active link, MB/s */
    TTI_NVML_VALUE_UNSIGNED = 1,
    TTI_NVML_REMOTE_CPU = 1, /* what a link ends at: GPU 0, a CPU 1, a switch 2 */
    /* nvmlDeviceGetArchitecture */
    TTI_NVML_PASCAL = 4,
    TTI_NVML_HOPPER = 9,
    TTI_NVML_BLACKWELL = 10,
};

/* nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3 and nvmlDeviceGetNvLinkRemotePciInfo_v2. */
struct tti_nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device;
    unsigned device_id, subsystem_id;
    char bus_id[32];
};

/* nvmlFieldValue_t. */
struct tti_nvml_field {
    unsigned field_id, scope_id;
    long long timestamp, latency_us;
    int value_type, result;
    union {
        double number;
        unsigned u;
        unsigned long long ull;
    } value;
};

/* Name, arguments; all return a code but nvmlErrorString. Without the first ones there is no use.
 */
#define TTI_NVML_FUNCTIONS(X)                                                     \
    X(nvmlInit_v2, (void))                                                        \
    X(nvmlShutdown, (void))                                                       \
    X(nvmlDeviceGetCount_v2, (unsigned *))                                        \
    X(nvmlDeviceGetHandleByIndex_v2, (unsigned, struct tti_nvml_device **))       \
    X(nvmlDeviceGetPciInfo_v3, (struct tti_nvml_device *, struct tti_nvml_pci *)) \
    X(nvmlDeviceGetName, (struct tti_nvml_device *, char *, unsigned))            \
    X(nvmlDeviceGetNvLinkState, (struct tti_nvml_device *, unsigned, unsigned *)) \
    X(nvmlDeviceGetNvLinkRemotePciInfo_v2,                                        \
      (struct tti_nvml_device *, unsigned, struct tti_nvml_pci *))
/* These may be missing from an older driver: NULL. */
#define TTI_NVML_OPTIONAL(X)                                                                 \
    X(nvmlDeviceGetNvLinkRemoteDeviceType, (struct tti_nvml_device *, unsigned, unsigned *)) \
    X(nvmlDeviceGetFieldValues, (struct tti_nvml_device *, int, struct tti_nvml_field *))    \
    X(nvmlDeviceGetArchitecture, (struct tti_nvml_device *, unsigned *))                     \
    X(nvmlDeviceGetP2PStatus,                                                                \
      (struct tti_nvml_device *, struct tti_nvml_device *, int, unsigned *))                 \
    X(nvmlDeviceGetTopologyCommonAncestor,                                                   \
      (struct tti_nvml_device *, struct tti_nvml_device *, unsigned *))                      \
    X(nvmlDeviceGetMaxPcieLinkGeneration, (struct tti_nvml_device *, unsigned *))            \
    X(nvmlDeviceGetMaxPcieLinkWidth, (struct tti_nvml_device *, unsigned *))

struct tti_nvml {
#define TTI_NVML_MEMBER(name, arguments) int(*name) arguments;
    TTI_NVML_FUNCTIONS(TTI_NVML_MEMBER)
    TTI_NVML_OPTIONAL(TTI_NVML_MEMBER)
#undef TTI_NVML_MEMBER
    const char *(*nvmlErrorString)(int);
};

/* The library, loaded by the first call and kept; TUTTI_ERR_UNSUPPORTED when it is not there. Call
 * nvmlInit_v2 before anything else, and nvmlShutdown at the end. */
enum tutti_result tti_nvml_load(const struct tti_nvml **nvml);
/* TUTTI_OK, or an error with the driver's own words for the code. */
enum tutti_result tti_nvml_check(const struct tti_nvml *nvml, int code, const char *function,
                                 int device);

#endif
