/* Which implementation of devices this process uses (coll/door.h). */
#include "coll/door.h"

#include "base/config.h"
#include "base/error.h"
#include "base/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

bool tti_gpu_driver_loaded(void)
{
    const char *set = tti_config_text("TUTTI_LIBCUDA");
    void *driver = dlopen(set ? set : "libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (driver)
        dlclose(driver);
    return driver != NULL;
}

/* The driver is here because it was asked for a device, and does not start. */
static _Atomic bool use_none;

static void use_ask(void)
{
    int count = 0;
    if (tti_gpu_driver_loaded() || tti_gpu_cuda()->count(&count) == TUTTI_OK)
        return;
    TTI_LOG(TTI_LOG_WARN, "there is no device memory in this process: %s", tti_error_text());
    use_none = true;
}

void tti_gpu_driver_ask(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, use_ask);
}

/* Programs that never touch a GPU must not pay for one: without TUTTI_DEVICE, NVIDIA's driver is
 * used only if the process has it loaded already. */
enum tutti_result tti_gpu_in_use(const struct tti_gpu_ops **ops)
{
    const char *name = tti_config_text("TUTTI_DEVICE");
    int count = 0;
    *ops = NULL;
    if (name && strcmp(name, "host") == 0)
        return TUTTI_OK;
    if (!name && (use_none || !tti_gpu_driver_loaded()))
        return TUTTI_OK;
    const struct tti_gpu_ops *found = NULL;
    enum tutti_result result = tti_gpu_find(name ? name : "cuda", &found);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "TUTTI_DEVICE (or host, for none)");
    TTI_TRY(found->count(&count));
    if (count == 0 && name)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "TUTTI_DEVICE is \"%s\", but there is no such device here (TUTTI_LOG=info "
                        "says why); unset it, or say host",
                        name);
    if (count > 0)
        *ops = found;
    return TUTTI_OK;
}
