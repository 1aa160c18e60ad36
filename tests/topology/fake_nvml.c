/* A stand-in for NVIDIA's libnvidia-ml.so.1 on machines without a GPU: TUTTI_LIBNVML names it. What
 * it describes is chosen by FAKE_NVML:
 *
 *   nvswitch  eight GPUs of Hopper's generation, 18 links each to switches, PCIe 5
 *   mesh      four GPUs of Volta's generation, two links between each two; the driver is old and
 *             tells no rate, and of two links that are down and one that ends at a CPU
 *   pcie      two GPUs without NVLink that may not read each other
 *   broken    the driver is not loaded
 *   sick      the second of two GPUs has fallen off the bus */
#include "topology/nvml_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAKE_API __attribute__((visibility("default")))

enum {
    FAKE_INVALID = 2,
    FAKE_UNSUPPORTED = 3,
    FAKE_LOST = 15,
    FAKE_VOLTA = 5,
    FAKE_AMPERE = 7,
    MOST = 8,
};

struct tti_nvml_device {
    unsigned index;
};
static struct tti_nvml_device fake_devices[MOST];
static int fake_users; /* nvmlInit less nvmlShutdown */

static int fake_is(const char *name)
{
    const char *machine = getenv("FAKE_NVML");
    return machine && strcmp(machine, name) == 0;
}

static unsigned fake_count(void)
{
    return fake_is("nvswitch") ? 8 : fake_is("mesh") ? 4 : 2;
}

static void fake_pci(unsigned index, struct tti_nvml_pci *pci)
{
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x10 + 0x10 * index;
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
}

FAKE_API int nvmlInit_v2(void);
FAKE_API int nvmlInit_v2(void)
{
    if (fake_is("broken"))
        return TTI_NVML_DRIVER_NOT_LOADED;
    fake_users++;
    return TTI_NVML_SUCCESS;
}

FAKE_API int nvmlShutdown(void);
FAKE_API int nvmlShutdown(void)
{
    fake_users--;
    return TTI_NVML_SUCCESS;
}

/* For the test: whether every nvmlInit was ended. */
FAKE_API int fake_nvml_users(void);
FAKE_API int fake_nvml_users(void)
{
    return fake_users;
}

FAKE_API const char *nvmlErrorString(int code);
FAKE_API const char *nvmlErrorString(int code)
{
    return code == TTI_NVML_DRIVER_NOT_LOADED ? "Driver Not Loaded"
           : code == FAKE_LOST                ? "GPU is lost"
                                              : "Another Error";
}

FAKE_API int nvmlDeviceGetCount_v2(unsigned *count);
FAKE_API int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = fake_count();
    return TTI_NVML_SUCCESS;
}

/* PyTorch wants these before it maps memory piece by piece. */
FAKE_API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct tti_nvml_device **device);
FAKE_API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct tti_nvml_device **device)
{
    (void)bus_id;
    *device = &fake_devices[0];
    return TTI_NVML_SUCCESS;
}
FAKE_API int nvmlSystemGetCudaDriverVersion_v2(int *version);
FAKE_API int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = 13000;
    return TTI_NVML_SUCCESS;
}
FAKE_API int nvmlDeviceGetComputeRunningProcesses(void);
FAKE_API int nvmlDeviceGetComputeRunningProcesses(void)
{
    return FAKE_UNSUPPORTED;
}
FAKE_API int nvmlDeviceGetGpuFabricInfoV(void);
FAKE_API int nvmlDeviceGetGpuFabricInfoV(void)
{
    return FAKE_UNSUPPORTED;
}

FAKE_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct tti_nvml_device **device);
FAKE_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct tti_nvml_device **device)
{
    if (fake_is("sick") && index == 1)
        return FAKE_LOST;
    if (index >= fake_count())
        return FAKE_INVALID;
    fake_devices[index].index = index;
    *device = &fake_devices[index];
    return TTI_NVML_SUCCESS;
}

FAKE_API int nvmlDeviceGetPciInfo_v3(struct tti_nvml_device *device, struct tti_nvml_pci *pci);
FAKE_API int nvmlDeviceGetPciInfo_v3(struct tti_nvml_device *device, struct tti_nvml_pci *pci)
{
    fake_pci(device->index, pci);
    return TTI_NVML_SUCCESS;
}

FAKE_API int nvmlDeviceGetName(struct tti_nvml_device *device, char *name, unsigned bytes);
FAKE_API int nvmlDeviceGetName(struct tti_nvml_device *device, char *name, unsigned bytes)
{
    (void)device;
    snprintf(name, bytes, "Fake \"%s\"", getenv("FAKE_NVML"));
    return TTI_NVML_SUCCESS;
}

FAKE_API int nvmlDeviceGetNvLinkState(struct tti_nvml_device *device, unsigned link, unsigned *up);
FAKE_API int nvmlDeviceGetNvLinkState(struct tti_nvml_device *device, unsigned link, unsigned *up)
{
    (void)device;
    if (fake_is("nvswitch") ? link >= 18 : fake_is("mesh") ? link >= 9 : 1)
        return link < 18 ? FAKE_UNSUPPORTED : FAKE_INVALID;
    *up = fake_is("nvswitch") || link < 7;
    return TTI_NVML_SUCCESS;
}

/* In a mesh: links 2k and 2k + 1 to the k-th other GPU, link 6 to the CPU. */
FAKE_API int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct tti_nvml_device *device, unsigned link,
                                                 struct tti_nvml_pci *pci);
FAKE_API int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct tti_nvml_device *device, unsigned link,
                                                 struct tti_nvml_pci *pci)
{
    unsigned peer = link / 2 + (link / 2 >= device->index);
    fake_pci(peer, pci);
    if (fake_is("nvswitch") || link == 6)
        pci->bus = 0xc0 + link % 4;
    return TTI_NVML_SUCCESS;
}

FAKE_API int nvmlDeviceGetNvLinkRemoteDeviceType(struct tti_nvml_device *device, unsigned link,
                                                 unsigned *type);
FAKE_API int nvmlDeviceGetNvLinkRemoteDeviceType(struct tti_nvml_device *device, unsigned link,
                                                 unsigned *type)
{
    (void)device;
    *type = fake_is("nvswitch") ? 2 : link == 6 ? TTI_NVML_REMOTE_CPU : 0;
    return TTI_NVML_SUCCESS;
}

FAKE_API int nvmlDeviceGetFieldValues(struct tti_nvml_device *device, int count,
                                      struct tti_nvml_field *fields);
FAKE_API int nvmlDeviceGetFieldValues(struct tti_nvml_device *device, int count,
                                      struct tti_nvml_field *fields)
{
    (void)device;
    for (int i = 0; i < count; i++) {
        bool known = fields[i].field_id == TTI_NVML_FIELD_NVLINK_MBPS && fake_is("nvswitch");
        fields[i].result = known ? TTI_NVML_SUCCESS : FAKE_UNSUPPORTED;
        fields[i].value_type = TTI_NVML_VALUE_UNSIGNED;
        fields[i].value.u = 26562;
    }
    return TTI_NVML_SUCCESS;
}

FAKE_API int nvmlDeviceGetArchitecture(struct tti_nvml_device *device, unsigned *architecture);
FAKE_API int nvmlDeviceGetArchitecture(struct tti_nvml_device *device, unsigned *architecture)
{
    (void)device;
    *architecture = fake_is("nvswitch") ? TTI_NVML_HOPPER
                    : fake_is("mesh")   ? FAKE_VOLTA
                                        : FAKE_AMPERE;
    return TTI_NVML_SUCCESS;
}

FAKE_API int nvmlDeviceGetP2PStatus(struct tti_nvml_device *a, struct tti_nvml_device *b, int which,
                                    unsigned *status);
FAKE_API int nvmlDeviceGetP2PStatus(struct tti_nvml_device *a, struct tti_nvml_device *b, int which,
                                    unsigned *status)
{
    (void)a;
    (void)b;
    if (which != TTI_NVML_P2P_READ)
        return FAKE_INVALID;
    *status = fake_is("pcie");
    return TTI_NVML_SUCCESS;
}

FAKE_API int nvmlDeviceGetTopologyCommonAncestor(struct tti_nvml_device *a,
                                                 struct tti_nvml_device *b, unsigned *level);
FAKE_API int nvmlDeviceGetTopologyCommonAncestor(struct tti_nvml_device *a,
                                                 struct tti_nvml_device *b, unsigned *level)
{
    (void)a;
    (void)b;
    *level = 50;
    return TTI_NVML_SUCCESS;
}

FAKE_API int nvmlDeviceGetMaxPcieLinkGeneration(struct tti_nvml_device *device, unsigned *value);
FAKE_API int nvmlDeviceGetMaxPcieLinkGeneration(struct tti_nvml_device *device, unsigned *value)
{
    (void)device;
    *value = fake_is("nvswitch") ? 5 : 3;
    return TTI_NVML_SUCCESS;
}

FAKE_API int nvmlDeviceGetMaxPcieLinkWidth(struct tti_nvml_device *device, unsigned *value);
FAKE_API int nvmlDeviceGetMaxPcieLinkWidth(struct tti_nvml_device *device, unsigned *value)
{
    (void)device;
    *value = 16;
    return TTI_NVML_SUCCESS;
}
