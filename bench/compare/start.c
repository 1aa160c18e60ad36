/* Figures of one start (bench/compare/start.h). */
#include "bench/compare/start.h"

#include <stdio.h>
#include <time.h>

int64_t start_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t start_pss(void)
{
    char line[200];
    long long kib = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Pss: %lld kB", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib * 1024;
}

void start_print(const int64_t *most, const int64_t *sum, int count, int ranks)
{
    static const char *const names[START_FIGURES] = {
        "init_ns", "ready_ns", "first_ns",    "pss",         "pss_all",
        "host",    "shared",   "shared_used", "descriptors",
    };
    printf("{\"ranks\": %d", ranks);
    for (int i = 0; i < count; i++)
        printf(", \"%s\": %lld, \"%s_sum\": %lld", names[i], (long long)most[i], names[i],
               (long long)sum[i]);
    printf("}\n");
    fflush(stdout);
}
