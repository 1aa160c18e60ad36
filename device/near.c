/* Memory near cores (near.h), by the system call itself: libnuma is not needed for one call. */
#include "device/near.h"

#include "base/config.h"
#include "base/kernel_file.h"
#include "base/log.h"

#include <limits.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* sysfs gives a page at most. */
enum { LIST_BYTES = 4096 + 1, MOST_NODES = 1024, WORD_BITS = CHAR_BIT * sizeof(unsigned long) };

bool tti_sysfs_list(const char *path, void (*visit)(void *context, int number), void *context)
{
    char text[LIST_BYTES];
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    text[strcspn(text, "\n")] = '\0';
    (void)tti_parse_list(text, MOST_NODES * 64, visit, context);
    return true;
}

struct near_nodes {
    int numbers[MOST_NODES];
    int count;
};

static void near_add_node(void *context, int number)
{
    struct near_nodes *nodes = context;
    if (nodes->count < MOST_NODES && number < MOST_NODES)
        nodes->numbers[nodes->count++] = number;
}

static void near_add_cpu(void *context, int number)
{
    if (number < CPU_SETSIZE)
        CPU_SET(number, (cpu_set_t *)context);
}

int tti_near_node(const char *sysfs, const cpu_set_t *cpus)
{
    struct near_nodes nodes = {.count = 0};
    char path[400];
    snprintf(path, sizeof path, "%.300s/devices/system/node/online", sysfs);
    if (!tti_sysfs_list(path, near_add_node, &nodes) || nodes.count < 2 || CPU_COUNT(cpus) == 0)
        return -1;
    for (int i = 0; i < nodes.count; i++) {
        cpu_set_t here;
        cpu_set_t common;
        CPU_ZERO(&here);
        snprintf(path, sizeof path, "%.300s/devices/system/node/node%d/cpulist", sysfs,
                 nodes.numbers[i]);
        if (!tti_sysfs_list(path, near_add_cpu, &here))
            return -1;
        CPU_AND(&common, &here, cpus);
        if (CPU_COUNT(&common) > 0)
            return CPU_EQUAL(&common, cpus) ? nodes.numbers[i] : -1;
    }
    return -1;
}

int tti_near_device(const char *sysfs, const char *pci)
{
    char path[400];
    snprintf(path, sizeof path, "%.300s/bus/pci/devices/%.40s/numa_node", sysfs, pci);
    return tti_kernel_number(path); /* the kernel has -1 for none, too */
}

enum tutti_result tti_near_bind(void *base, size_t bytes, int node)
{
    unsigned long mask[MOST_NODES / WORD_BITS] = {0};
    if (node < 0 || node >= MOST_NODES)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "NUMA node %d for memory", node);
    mask[node / (int)WORD_BITS] = 1UL << node % (int)WORD_BITS;
    /* The kernel counts the bits with one to spare. */
    if (syscall(SYS_mbind, base, bytes, MPOL_PREFERRED, mask, (unsigned long)MOST_NODES + 1, 0U) !=
        0)
        return TTI_FAIL_ERRNO("mbind of %zu bytes to NUMA node %d", bytes, node);
    return TUTTI_OK;
}

/* With one node, or none that the kernel tells of, there is nothing to ask for. */
static pthread_once_t near_once = PTHREAD_ONCE_INIT;
static bool near_several;

static void near_count(void)
{
    struct near_nodes nodes = {.count = 0};
    near_several =
        tti_sysfs_list("/sys/devices/system/node/online", near_add_node, &nodes) && nodes.count > 1;
}

void tti_near_place(void *base, size_t bytes)
{
    cpu_set_t cpus;
    (void)pthread_once(&near_once, near_count);
    if (!near_several || sched_getaffinity(0, sizeof cpus, &cpus) != 0)
        return;
    int node = tti_near_node("/sys", &cpus);
    if (node >= 0 && tti_near_bind(base, bytes, node) != TUTTI_OK)
        TTI_LOG(TTI_LOG_DEBUG, "memory lies where it is touched first: %s", tti_error_text());
}
