/* What a rank did last, copied out of its recorder (recorder.h) or read from a dump: the form in
 * which operations of several ranks are laid side by side (verdict.h). */
#ifndef TTI_COLL_LOGBOOK_H
#define TTI_COLL_LOGBOOK_H

#include "coll/recorder.h"

struct tti_logged {
    uint64_t index, sequence, count; /* the count of a wait: signals */
    uint64_t bytes;                  /* so far, this one included */
    uint64_t start_ns, end_ns;       /* as in the record */
    int32_t root, waits_for;
    uint32_t queued_us;
    uint8_t collective, type, op, path, algorithm, lanes;
    uint8_t alone; /* enum tti_alone: its collective is SEND_RECV then ... */
    int8_t signal; /* ... with this one, or TUTTI_NO_SIGNAL */
    bool receives, sends, failed;
    bool uneven; /* on uneven blocks, or a message of such an operation (recorder.h) */
    bool graphs; /* behind captured ones: not to be compared by its number (recorder.h) */
};

enum tti_logbook_state {
    TTI_LOGBOOK_SILENT, /* asked, and has not answered */
    TTI_LOGBOOK_LEFT,   /* has destroyed its communicator */
    TTI_LOGBOOK_THERE,
    TTI_LOGBOOK_UNSEEN, /* not looked at: of another host, or without a dump */
};

struct tti_logbook {
    enum tti_logbook_state state;
    uint64_t now_ns;   /* of the rank's clock, when this was copied */
    size_t count;      /* oldest first */
    size_t host_count; /* the first of them; the rest are on device memory */
    uint64_t begun[TTI_RECORD_RINGS];
    struct tti_logged *ops;
    const char *name; /* "host:pid" or NULL */
    bool stopped;     /* its process does not run, as far as can be seen from here */
};

/* The latest operations of a ring, oldest first, at most `most`; returns their number. The page may
 * be written meanwhile: what is overwritten is left out. `page` was checked by tti_page_check. */
size_t tti_page_read(const struct tti_record_page *page, int ring, struct tti_logged *ops,
                     size_t most);
/* Is what is mapped (`bytes` of it) such a page, and of this version? */
enum tutti_result tti_page_check(const struct tti_record_page *page, size_t bytes);
/* Both rings; allocates `ops` (free it). */
enum tutti_result tti_logbook_read(const struct tti_record_page *page, size_t most,
                                   struct tti_logbook *book);

/* In a message, and back: at most `room` bytes, the latest operations that fit. The reader believes
 * nothing that it is sent; it allocates `ops`. */
enum { TTI_LOGBOOK_BYTES = 4096, TTI_LOGBOOK_SHORT_BYTES = 1024 };
size_t tti_logbook_encode(const struct tti_record_page *page, void *message, size_t room);
enum tutti_result tti_logbook_decode(const void *message, size_t bytes, struct tti_logbook *book);

/* Can the values be (enums in range)? For what came from outside. */
bool tti_logged_sound(const struct tti_logged *op);
/* "all_reduce", "send", "put", ... */
const char *tti_logged_name(const struct tti_logged *op);
/* Those of which calls on uneven blocks are recorded: reduces of several roots (roots.h), too. */
bool tti_logged_uneven(enum tutti_collective collective);

/* The collective whose uneven form a message is part of; 0: it is none, or of none. */
static inline enum tutti_collective tti_logged_part(const struct tti_logged *op)
{
    return op->uneven && op->collective == TUTTI_SEND_RECV && op->algorithm < TUTTI_SEND_RECV
               ? (enum tutti_collective)op->algorithm
               : (enum tutti_collective)0;
}
/* One message of two ranks, for which there is another call at the other side. */
static inline bool tti_logged_pairs(const struct tti_logged *op)
{
    return op->collective == TUTTI_SEND_RECV && op->alone == TTI_NOT_ALONE;
}
/* "all_reduce #41 (count 10, float32, sum)". Returns `text`. */
const char *tti_logged_text(const struct tti_logged *op, char *text, size_t bytes);
/* The same call on all ranks: what ranks must agree on. */
bool tti_logged_same(const struct tti_logged *a, const struct tti_logged *b);
static inline bool tti_logged_runs(const struct tti_logged *op)
{
    return op->end_ns == TTI_RECORD_RUNS;
}

const char *tti_record_path_name(int path);

#endif
