/* Descriptions in files: our JSON, and hwloc's XML (graph.h). */
#include "topology/graph.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MOST_BYTES = 1 << 28 };

static enum tutti_result file_json(const char *path, FILE *file, size_t size,
                                   struct tti_topology **topology)
{
    char *text = tti_calloc(size + 1, 1);
    if (!text)
        return TUTTI_ERR_MEMORY;
    const size_t bytes = fread(text, 1, size, file);
    enum tutti_result result = tti_topology_from_json(text, bytes, topology);
    free(text);
    return result == TUTTI_OK ? TUTTI_OK : TTI_CONTEXT(result, "%s", path);
}

enum tutti_result tti_topology_from_file(const char *path, struct tti_topology **topology)
{
    const size_t length = strlen(path);
    struct stat info;
    if (stat(path, &info) != 0)
        return TTI_FAIL_ERRNO("cannot open %s", path);
    /* Looked at before it is opened: a pipe would wait for who writes into it. */
    if (!S_ISREG(info.st_mode) || info.st_size > FILE_MOST_BYTES)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is no file of at most %d bytes", path,
                        FILE_MOST_BYTES);
    if (length > 4 && strcmp(path + length - 4, ".xml") == 0)
        return tti_topology_from_xml(path, topology);
    FILE *file = fopen(path, "re");
    if (!file)
        return TTI_FAIL_ERRNO("cannot open %s", path);
    enum tutti_result result = file_json(path, file, (size_t)info.st_size, topology);
    fclose(file);
    return result;
}
