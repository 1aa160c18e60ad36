/* This machine's identity (topology/machine.h). */
#include "topology/machine.h"

#include "device/cpu_caches.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { PATH_BYTES = 400 };

/* The beginning of a small file, as text; "" if there is none. */
static const char *machine_read(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, bytes - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    return text;
}

/* The value of the first line "KEY : value" of cpuinfo, appended to `out` after `before`. */
static void machine_append(const char *info, const char *key, const char *before, char *out,
                           size_t bytes)
{
    size_t length = strlen(key), used = strlen(out);
    for (const char *line = info; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, length) != 0 || !colon)
            continue;
        const char *at = line + length;
        at += strspn(at, " \t");
        if (at != colon)
            continue;
        at = colon + 1 + strspn(colon + 1, " \t");
        snprintf(out + used, bytes - used, "%s%.*s", before, (int)strcspn(at, "\n"), at);
        return;
    }
}

/* Printable ASCII without what our files cannot hold. */
static void machine_clean(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~' || *text == '"' || *text == '\\')
            *text = '_';
}

void tti_machine_identify(const char *root, struct tti_machine *machine)
{
    char path[PATH_BYTES], info[4096];
    struct utsname name;
    memset(machine, 0, sizeof *machine);
    tti_cpu_caches(root, machine->cache);
    machine->cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(path, sizeof path, "%.300s/proc/cpuinfo", root);
    machine_read(path, info, sizeof info);
    char *second = strstr(info, "\n\n"); /* the first CPU's part is enough */
    if (second)
        *second = '\0';
    machine_append(info, "model name", "", machine->cpu, sizeof machine->cpu);
    machine_append(info, "cpu family", " family ", machine->cpu, sizeof machine->cpu);
    machine_append(info, "model", " model ", machine->cpu, sizeof machine->cpu);
    machine_append(info, "CPU implementer", "implementer ", machine->cpu, sizeof machine->cpu);
    machine_append(info, "CPU part", " part ", machine->cpu, sizeof machine->cpu);
    if (uname(&name) != 0)
        return;
    if (!machine->cpu[0])
        snprintf(machine->cpu, sizeof machine->cpu, "%.60s", name.machine);
    snprintf(machine->host, sizeof machine->host, "%.90s", name.nodename);
    machine_clean(machine->cpu);
    machine_clean(machine->host);
}

bool tti_machine_alike(const struct tti_machine *a, const struct tti_machine *b)
{
    return strcmp(a->cpu, b->cpu) == 0 && a->cpus == b->cpus &&
           memcmp(a->cache, b->cache, sizeof a->cache) == 0;
}
