/* The recorders of running processes, found and mapped (tools/tutti_status.c).
 *
 * They are memfds among the descriptors of processes of the same user: /proc lets nobody else in.
 * They are mapped read-only; the process is not asked, so it may be hung or stopped. */
#ifndef TTI_TOOLS_STATUS_PAGES_H
#define TTI_TOOLS_STATUS_PAGES_H

#include "coll/dump.h"

struct status_page {
    const struct tti_record_page *page;
    size_t bytes;
    uint64_t inode;
    int pid;      /* as this process sees it */
    bool stopped; /* by a signal or a debugger */
};

struct status_pages {
    struct status_page *all; /* by family, communicator, rank */
    size_t count, capacity;
};

enum tutti_result status_pages_find(struct status_pages *pages);
void status_page_release(struct status_page *page);
void status_pages_release(struct status_pages *pages);

#endif
