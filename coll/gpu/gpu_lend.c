/* See gpu_lend.h. A loan begins as a wish of a call's; the watching thread exports it and writes to
 * all others; when all have answered it is lent, or refused. It is taken back when its memory turns
 * out to be another's (the number that the driver gives an allocation is never used again), or when
 * another buffer needs its slot, and not before the calls that may use it are over. One letter is
 * under way at a time, so that what is taken back is gone before its addresses are lent again. */
#include "coll/gpu/gpu_map.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "coll/select.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LOOKS = 100, /* turns of the watching thread after a call, in which others may write */
    READ_SECONDS = 1,
    CAPTURE_SECONDS = 2, /* a graph keeps what its capture finds */
    LEAVE_SECONDS = 5,
    LONG_AGO = 4 * TTI_LEND_SLOTS, /* buffers of calls */
    NOBODY = -1,
};

enum letter_kind { LETTER_LEND, LETTER_TAKE_BACK };

enum loan_state {
    LOAN_FREE,
    LOAN_WANTED,  /* by a call */
    LOAN_SENT,    /* to all others, who have not all answered */
    LOAN_LENT,    /* all have it */
    LOAN_REFUSED, /* it cannot go, or somebody cannot map it */
    LOAN_OVER,    /* to be taken back */
    LOAN_LEAVING, /* ... which the others were told */
};

struct loan {
    enum loan_state state;
    bool captured; /* a graph may use it at any time */
    uint64_t id, used;
    char *base;
    size_t bytes;
    uint64_t at[TTI_GPU_RANKS]; /* where they have it */
};

struct tti_gpu_lend {
    size_t from;
    pthread_mutex_t lock; /* of the loans; the rest is the watching thread's */
    struct loan loans[TTI_LEND_SLOTS];
    uint64_t used;
    _Atomic uint64_t calls, direct;
    uint64_t looked;
    int looks;
    int sent; /* the slot that the letter under way is about */
    uint32_t number;
    uint32_t read[TTI_GPU_RANKS]; /* letters from others */
    void *borrowed[TTI_GPU_RANKS][TTI_LEND_SLOTS];
};

enum tutti_result tti_gpu_lend_make(struct tti_gpu_map *map, size_t from)
{
    struct tti_gpu_lend *lend = tti_calloc(1, sizeof *lend);
    if (!lend)
        return TUTTI_ERR_MEMORY;
    lend->from = from;
    lend->sent = NOBODY;
    pthread_mutex_init(&lend->lock, NULL);
    map->lend = lend;
    return TUTTI_OK;
}

void tti_gpu_lend_drop(struct tti_gpu_side *side, struct tti_gpu_map *map)
{
    struct tti_gpu_lend *lend = map->lend;
    if (!lend)
        return;
    for (int r = 0; r < TTI_GPU_RANKS; r++)
        for (int k = 0; k < TTI_LEND_SLOTS; k++)
            tti_gpu_retire_import(side->gpu, lend->borrowed[r][k]);
    pthread_mutex_destroy(&lend->lock);
    free(lend);
    map->lend = NULL;
}

size_t tti_gpu_lend_bytes(const struct tti_gpu_map *map)
{
    return map->lend ? tti_heap_bytes(map->lend) : 0;
}

/* ---- calls ---- */

bool tti_gpu_lend_takes(const struct tutti_comm *comm, const struct tti_operation *o)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    char name[64];
    if (!map->lend || o->collective == TUTTI_BARRIER || o->count == 0 ||
        o->count * tutti_type_size(o->type) < map->lend->from)
        return false;
    /* In place, an all-to-all overwrites what others may still read. */
    if (o->collective == TUTTI_ALL_TO_ALL || tti_gpu_premultiplied(o) || o->blocks)
        return false;
    return map->way == TTI_GPU_WINDOW ||
           (comm->settings.fast && !tti_gpu_forced(comm, o->collective, name, sizeof name));
}

void tti_gpu_lend_count(struct tti_gpu_map *map, bool direct)
{
    atomic_fetch_add_explicit(&map->lend->calls, 1, memory_order_relaxed);
    if (direct)
        atomic_fetch_add_explicit(&map->lend->direct, 1, memory_order_relaxed);
}

uint64_t tti_gpu_lend_direct(const struct tti_gpu_map *map)
{
    return map->lend ? atomic_load_explicit(&map->lend->direct, memory_order_relaxed) : 0;
}

/* Under the lock, as are the next two: a slot for another loan, or NULL; then one that has not been
 * used for long is given up for it. */
static struct loan *loan_slot(struct tti_gpu_lend *lend)
{
    struct loan *oldest = NULL;
    bool leaving = false;
    for (int k = 0; k < TTI_LEND_SLOTS; k++) {
        struct loan *loan = &lend->loans[k];
        if (loan->state == LOAN_FREE)
            return loan;
        leaving = leaving || loan->state == LOAN_OVER || loan->state == LOAN_LEAVING;
        const bool rests = loan->state == LOAN_LENT || loan->state == LOAN_REFUSED;
        if (rests && !loan->captured && (!oldest || loan->used < oldest->used))
            oldest = loan;
    }
    if (oldest && !leaving && oldest->used + LONG_AGO < lend->used)
        oldest->state = LOAN_OVER;
    return NULL;
}

/* What is known of the allocation; those whose memory it has now are over. */
static struct loan *loan_of(struct tti_gpu_lend *lend, const struct tti_gpu_pointer *info)
{
    const char *base = info->base;
    struct loan *found = NULL;
    for (int k = 0; k < TTI_LEND_SLOTS; k++) {
        struct loan *loan = &lend->loans[k];
        if (loan->state == LOAN_FREE || loan->state == LOAN_OVER || loan->state == LOAN_LEAVING)
            continue;
        if (loan->id == info->id)
            found = loan;
        else if (base < loan->base + loan->bytes && loan->base < base + info->bytes)
            loan->state = LOAN_OVER;
    }
    return found;
}

static enum loan_state loan_ask(struct tti_gpu_lend *lend, const struct tti_gpu_pointer *info,
                                bool capturing, uint64_t at[TTI_GPU_RANKS])
{
    struct loan *loan = loan_of(lend, info);
    if (!loan) {
        loan = loan_slot(lend);
        if (!loan)
            return LOAN_REFUSED;
        *loan = (struct loan){
            .state = LOAN_WANTED, .id = info->id, .base = info->base, .bytes = info->bytes};
    }
    loan->used = ++lend->used;
    if (loan->state == LOAN_LENT) {
        loan->captured |= capturing;
        memcpy(at, loan->at, sizeof loan->at);
    }
    return loan->state;
}

bool tti_gpu_lend_find(struct tutti_comm *comm, const void *address, bool capturing,
                       char *at[TTI_GPU_RANKS])
{
    const struct tti_gpu_map *map = comm->gpu->map;
    struct tti_gpu_lend *lend = map->lend;
    const uint64_t deadline = tti_deadline_in(capturing ? CAPTURE_SECONDS : 0);
    struct tti_gpu_pointer info;
    uint64_t bases[TTI_GPU_RANKS];
    if (comm->gpu->ops->pointer(address, &info) != TUTTI_OK || info.kind != TTI_MEMORY_DEVICE ||
        info.id == 0 || !info.base) /* mapped piece by piece: the driver may know no allocation */
        return false;
    for (int round = 0;; round++) {
        pthread_mutex_lock(&lend->lock);
        const enum loan_state state = loan_ask(lend, &info, capturing, bases);
        pthread_mutex_unlock(&lend->lock);
        if (state == LOAN_LENT)
            break;
        if (state == LOAN_REFUSED || tti_deadline_passed(deadline) ||
            tti_comm_check(comm) != TUTTI_OK)
            return false;
        tti_nap(round);
    }
    for (int r = 0; r < map->size; r++)
        at[r] = (char *)(uintptr_t)bases[r] + ((const char *)address - (const char *)info.base);
    return true;
}

/* ---- letters: the watching thread's ---- */

static bool lend_wait(struct tutti_comm *comm)
{
    return tti_gpu_stream_wait(comm->gpu->gpu, comm->gpu->map->aside, tti_deadline_in(READ_SECONDS),
                               "letters about device memory") == TUTTI_OK;
}

/* The letters and answers in the own arena; not the places, which are for kernels. */
static bool lend_fetch(struct tutti_comm *comm)
{
    enum { AT = offsetof(struct tti_lend_page, letters) };
    struct tti_gpu_map *map = comm->gpu->map;
    return comm->gpu->ops->copy(comm->gpu->gpu, (char *)&map->told->lend.page + AT,
                                (const char *)tti_gpu_lend_page(map, map->rank) + AT,
                                sizeof map->told->lend.page - AT, map->aside) == TUTTI_OK &&
           lend_wait(comm);
}

/* All behind the number at `to`, and then the number: who sees that finds the rest. */
static bool lend_put(struct tutti_comm *comm, void *to, const void *from, size_t bytes,
                     uint32_t number)
{
    const struct tti_gpu_ops *ops = comm->gpu->ops;
    struct tti_gpu_map *map = comm->gpu->map;
    const size_t head = sizeof number;
    return ops->copy(comm->gpu->gpu, (char *)to + head, (const char *)from + head, bytes - head,
                     map->aside) == TUTTI_OK &&
           ops->stream_write(comm->gpu->gpu, to, number, map->aside) == TUTTI_OK;
}

/* A loan of another rank's, for this device. *borrowed: what is to be given back, if anything. */
static enum tutti_result lend_borrow(struct tutti_comm *comm, const struct tti_letter *letter,
                                     void **base, void **borrowed)
{
    struct tti_gpu *gpu = comm->gpu->gpu;
    uint64_t process[2];
    tti_gpu_process(process);
    if (memcmp(process, letter->process, sizeof process) != 0) {
        TTI_TRY(gpu->ops->memory_import(gpu, &letter->handle, -1, base));
        *borrowed = *base;
        return TUTTI_OK;
    }
    *base = (void *)(uintptr_t)letter->base;
    return letter->device == gpu->device ? TUTTI_OK
                                         : gpu->ops->memory_reach(gpu, *base, letter->device);
}

static void lend_answer(struct tutti_comm *comm, int rank)
{
    struct tti_gpu_map *map = comm->gpu->map;
    struct tti_gpu_lend *lend = map->lend;
    const struct tti_letter *letter = &map->told->lend.page.letters[rank];
    struct tti_answer *answer = &map->told->lend.answers[rank];
    if (letter->number == lend->read[rank] || letter->slot >= TTI_LEND_SLOTS)
        return;
    void **borrowed = &lend->borrowed[rank][letter->slot];
    *answer = (struct tti_answer){.good = 1};
    if (*borrowed)
        comm->gpu->ops->memory_release(comm->gpu->gpu, *borrowed);
    *borrowed = NULL;
    if (letter->kind == LETTER_LEND) {
        void *base = NULL;
        answer->good = tti_gpu_map_said(lend_borrow(comm, letter, &base, borrowed));
        answer->base = (uint64_t)(uintptr_t)base;
    }
    if (lend_put(comm, &tti_gpu_lend_page(map, rank)->answers[map->rank], answer, sizeof *answer,
                 letter->number))
        lend->read[rank] = letter->number;
}

/* Have all answered the letter under way? */
static void lend_hear(struct tutti_comm *comm)
{
    struct tti_gpu_map *map = comm->gpu->map;
    struct tti_gpu_lend *lend = map->lend;
    const struct tti_answer *answers = map->told->lend.page.answers;
    bool good = true;
    if (lend->sent == NOBODY)
        return;
    for (int r = 0; r < map->size; r++) {
        if (r != map->rank && answers[r].number != lend->number)
            return;
        good = good && (r == map->rank || answers[r].good);
    }
    struct loan *loan = &lend->loans[lend->sent];
    pthread_mutex_lock(&lend->lock);
    if (loan->state == LOAN_LEAVING) {
        memset(loan, 0, sizeof *loan);
    } else if (loan->state == LOAN_SENT) {
        loan->state = good ? LOAN_LENT : LOAN_REFUSED;
        for (int r = 0; r < map->size; r++)
            loan->at[r] = r == map->rank ? (uint64_t)(uintptr_t)loan->base : answers[r].base;
    }
    pthread_mutex_unlock(&lend->lock);
    lend->sent = NOBODY;
}

/* Is nothing queued that may use a loan that is over? */
static bool lend_idle(struct tutti_comm *comm)
{
    struct tti_gpu_side *side = comm->gpu;
    if (pthread_mutex_trylock(&side->lock) != 0)
        return false;
    const bool idle =
        !side->last.any || side->ops->event_query(side->last.event) != TUTTI_IN_PROGRESS;
    pthread_mutex_unlock(&side->lock);
    return idle;
}

/* The slot that the next letter is about. */
static int lend_next(struct tutti_comm *comm, struct loan *about)
{
    struct tti_gpu_lend *lend = comm->gpu->map->lend;
    int over = NOBODY, wanted = NOBODY;
    pthread_mutex_lock(&lend->lock);
    for (int k = TTI_LEND_SLOTS - 1; k >= 0; k--) {
        over = lend->loans[k].state == LOAN_OVER ? k : over;
        wanted = lend->loans[k].state == LOAN_WANTED ? k : wanted;
    }
    const int next = over != NOBODY ? over : wanted;
    if (next != NOBODY)
        *about = lend->loans[next];
    pthread_mutex_unlock(&lend->lock);
    return over != NOBODY && !lend_idle(comm) ? NOBODY : next;
}

/* The handle of a loan whose memory is still there, and can go without a descriptor. */
static bool lend_export(struct tutti_comm *comm, const struct loan *loan,
                        struct tti_gpu_handle *handle)
{
    const struct tti_gpu_ops *ops = comm->gpu->ops;
    struct tti_gpu_pointer info;
    int fd = -1;
    if (!tti_gpu_map_said(ops->memory_export(comm->gpu->gpu, loan->base, handle, &fd)))
        return false;
    if (fd >= 0) {
        close(fd);
        TTI_LOG(TTI_LOG_INFO, "a buffer of device memory goes to other processes by descriptor "
                              "alone; it is copied through the window");
        return false;
    }
    return ops->pointer(loan->base, &info) == TUTTI_OK && info.id == loan->id;
}

static void lend_become(struct tti_gpu_lend *lend, int slot, enum loan_state from,
                        enum loan_state to)
{
    pthread_mutex_lock(&lend->lock);
    if (lend->loans[slot].state == from)
        lend->loans[slot].state = to;
    pthread_mutex_unlock(&lend->lock);
}

static void lend_write(struct tutti_comm *comm)
{
    struct tti_gpu_map *map = comm->gpu->map;
    struct tti_gpu_lend *lend = map->lend;
    struct tti_letter *letter = &map->told->lend.letter;
    struct loan about;
    const int slot = lend_next(comm, &about);
    if (slot == NOBODY)
        return;
    const bool lends = about.state == LOAN_WANTED;
    memset(letter, 0, sizeof *letter);
    if (lends && !lend_export(comm, &about, &letter->handle)) {
        lend_become(lend, slot, LOAN_WANTED, LOAN_REFUSED);
        return;
    }
    letter->kind = lends ? LETTER_LEND : LETTER_TAKE_BACK;
    letter->slot = (uint32_t)slot;
    letter->device = comm->gpu->gpu->device;
    letter->base = (uint64_t)(uintptr_t)about.base;
    tti_gpu_process(letter->process);
    lend_become(lend, slot, about.state, lends ? LOAN_SENT : LOAN_LEAVING);
    lend->sent = slot;
    lend->number++;
    for (int r = 0; r < map->size; r++)
        if (r != map->rank)
            (void)lend_put(comm, &tti_gpu_lend_page(map, r)->letters[map->rank], letter,
                           sizeof *letter, lend->number);
    (void)lend_wait(comm);
}

static bool lend_news(const struct tutti_comm *comm)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    const struct tti_lend_page *page = &map->told->lend.page;
    for (int r = 0; r < map->size; r++)
        if (page->letters[r].number != map->lend->read[r] ||
            (map->lend->sent != NOBODY && page->answers[r].number == map->lend->number))
            return true;
    return false;
}

void tti_gpu_lend_turn(struct tutti_comm *comm)
{
    struct tti_gpu_lend *lend = comm->gpu->map->lend;
    if (!lend)
        return;
    const uint64_t calls = atomic_load_explicit(&lend->calls, memory_order_relaxed);
    lend->looks = calls != lend->looked ? LOOKS : lend->looks;
    lend->looked = calls;
    if (lend->looks == 0 || !lend_fetch(comm))
        return;
    lend->looks--;
    /* Once more: what was seen of it may have been copied before the rest was there. */
    if (lend_news(comm) && lend_fetch(comm)) {
        for (int r = 0; r < comm->gpu->map->size; r++)
            if (r != comm->gpu->map->rank)
                lend_answer(comm, r);
        (void)lend_wait(comm);
        lend_hear(comm);
    }
    if (lend->sent == NOBODY)
        lend_write(comm);
}

/* ---- after a failure ---- */

/* Has the rank left all buffers by the deadline? It is asked once at least: another may have used
 * up the time. */
static bool lend_left(struct tutti_comm *comm, int rank, uint64_t deadline)
{
    struct tti_gpu_map *map = comm->gpu->map;
    uint32_t *inside = &map->told->lend.inside[rank];
    for (int round = 0;; round++) {
        *inside = 1;
        if (comm->gpu->ops->copy(comm->gpu->gpu, inside,
                                 &tti_gpu_lend_page(map, rank)->places.inside, sizeof *inside,
                                 map->aside) != TUTTI_OK ||
            !lend_wait(comm))
            return false;
        if (*inside == 0 || tti_deadline_passed(deadline))
            return *inside == 0;
        tti_nap(round);
    }
}

void tti_gpu_lend_end(struct tutti_comm *comm)
{
    struct tti_gpu_map *map = comm->gpu->map;
    const struct tti_gpu_ops *ops = comm->gpu->ops;
    const uint64_t deadline = tti_deadline_in(LEAVE_SECONDS);
    if (!map->lend || !map->told)
        return;
    for (int r = 0; r < map->size; r++)
        (void)ops->stream_write(comm->gpu->gpu, &tti_gpu_lend_page(map, r)->places.gave_up, 1,
                                map->aside);
    (void)lend_wait(comm); /* all see that before the next is read */
    for (int r = 0; r < map->size; r++) {
        uint32_t nobody = 0;
        if (r != map->rank && !lend_left(comm, r, deadline))
            __atomic_compare_exchange_n(&map->told->status.stuck, &nobody, (uint32_t)r + 1, false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
}
