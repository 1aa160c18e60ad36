/* See process_holdings.h. */
#include "tests/fault/process_holdings.h"

#include <dirent.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static long holdings_entries(const char *path)
{
    long count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static long holdings_segments(void)
{
    char line[600];
    long count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, "memfd:") || strstr(line, "/dev/shm/");
    if (maps)
        fclose(maps);
    return count;
}

struct process_holdings process_holdings(long threads)
{
    struct process_holdings held = {.threads = holdings_entries("/proc/self/task") - 2};
    for (int i = 0; i < 200 && held.threads > threads; i++) {
        (void)poll(NULL, 0, 1);
        held.threads = holdings_entries("/proc/self/task") - 2;
    }
    held.files = holdings_entries("/proc/self/fd") - 3;
    held.segments = holdings_segments();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    held.heap = mallinfo2().uordblks + mallinfo2().hblkhd;
#endif
    return held;
}
