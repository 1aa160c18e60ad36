/* Will processes of this host read each other's memory?
 *
 * Whether they can is only known when a pair has tried it (connect.c), which is after ranks have
 * agreed on what they choose algorithms by. What forbids it is mostly the system's, though, and can
 * be seen beforehand: a setting, a seccomp filter, Yama, a pid namespace of one's own. */
#include "base/kernel_file.h"
#include "transport/shm/shm.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* A filter sees the call's number alone, so it forbids what is one's own as well. */
bool tti_shm_call_passes(void)
{
    unsigned char from = 1, to = 0;
    struct iovec here = {.iov_base = &to, .iov_len = 1}, there = {.iov_base = &from, .iov_len = 1};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

static bool reads_capable(const char *proc)
{
    enum { CAP_SYS_PTRACE = 19 };
    char path[256], line[128];
    uint64_t effective = 0;
    snprintf(path, sizeof path, "%s/self/status", proc);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "CapEff: %" SCNx64, &effective) == 1)
            break;
    if (file)
        fclose(file);
    return effective >> CAP_SYS_PTRACE & 1;
}

/* From 1 on only what is above in the tree of processes may, and ranks stand beside one another;
 * from 3 on nobody. */
bool tti_shm_yama_lets(const char *proc)
{
    char path[256];
    snprintf(path, sizeof path, "%s/sys/kernel/yama/ptrace_scope", proc);
    const int scope = tti_kernel_number(path); /* below 0: there is no Yama */
    return scope < 1 || (scope < 3 && reads_capable(proc));
}

uint64_t tti_shm_reads(void *transport)
{
    const struct shm_transport *self = transport;
    struct stat space;
    if (self->settings.memory == SHM_MEMORY_NONE || !tti_shm_call_passes() ||
        !tti_shm_yama_lets("/proc") || stat("/proc/self/ns/pid", &space) != 0)
        return 0;
    return (uint64_t)space.st_ino;
}
