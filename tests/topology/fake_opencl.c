/* A stand-in for an OpenCL driver: it says that it was loaded, and is none. */
#include <stdlib.h>

__attribute__((constructor)) static void fake_loaded(void)
{
    (void)setenv("FAKE_OPENCL_LOADED", "1", 1);
}
