/* The layer reads and writes tensors by the CPU: a pointer to a GPU's memory would end the process.
 * So it is asked what it is, where there is a GPU to ask (ddp/host_memory.h). */
#include "ddp/host_memory.h"

#include "coll/door.h"

enum tutti_result tti_host_memory(const void *memory, const char *call, const char *name)
{
    const struct tti_gpu_ops *ops = NULL;
    struct tti_gpu_pointer info;
    if (!memory)
        return TUTTI_OK;
    TTI_TRY(tti_gpu_in_use(&ops));
    if (!ops)
        return TUTTI_OK;
    TTI_TRY(ops->pointer(memory, &info));
    if (info.kind == TTI_MEMORY_DEVICE)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "%s: %s is memory of GPU %d, which the training layer does not take; give "
                        "host memory (page-locked and managed memory are host memory, too)",
                        call, name, info.device);
    return TUTTI_OK;
}
