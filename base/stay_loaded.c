#include "base/stay_loaded.h"

#include <dlfcn.h>

static const char ours; /* its address is in the library */

void tti_stay_loaded(void)
{
    Dl_info library;
    if (dladdr(&ours, &library) && library.dli_fname)
        (void)dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}
