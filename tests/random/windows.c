/* Puts into windows, in random programs. Each put has a place of its own in the window of its peer;
 * when all that a rank expects is there, and all ranks have seen theirs, the next ones may come. */
#include "tests/integration/device_calls.h"
#include "tests/random/actor.h"
#include "tests/rank_check.h"

#include <string.h>

enum { PUTS = 8, WINDOW_BYTES = 200000 };

struct put {
    int from, to, signal; /* ranks of the family */
    size_t offset, bytes;
    bool apart; /* the signal is a call of its own */
    uint64_t salt;
};

static char put_byte(const struct put *p, size_t i)
{
    return (char)draw_mix(p->salt + i);
}

int step_window_create(struct actor *a)
{
    const int family = family_draw(a);
    const struct family *f = &a->families[family];
    struct random_window *w = NULL;
    for (int k = 0; k < RANDOM_WINDOWS && !w; k++)
        w = a->windows[k].live ? NULL : &a->windows[k];
    const size_t bytes = draw_once_in(&a->all, 8) ? 0 : 1 + draw_below(&a->all, WINDOW_BYTES);
    if (!w)
        return 0;
    *w = (struct random_window){.live = true, .family = family, .bytes = bytes};
    if (f->own < 0)
        return 0;
    if (buffer_take(a, bytes, false, &w->memory))
        return 1;
    CHECK_OK(tutti_window_create(w->memory.data, bytes, f->comm, &w->window));
    return 0;
}

static struct random_window *window_draw(struct actor *a)
{
    const int first = draw_int(&a->all, RANDOM_WINDOWS);
    for (int k = 0; k < RANDOM_WINDOWS; k++)
        if (a->windows[(first + k) % RANDOM_WINDOWS].live)
            return &a->windows[(first + k) % RANDOM_WINDOWS];
    return NULL;
}

/* Which puts there are, alike on all ranks. Returns their number. */
static int puts_draw(struct actor *a, const struct random_window *w, struct put puts[PUTS])
{
    const int n = a->families[w->family].size, many = 1 + draw_int(&a->all, PUTS);
    size_t used[RANDOM_RANKS] = {0};
    for (int k = 0; k < many; k++) {
        struct put *p = &puts[k];
        p->from = draw_int(&a->all, n);
        p->to = draw_int(&a->all, n);
        p->signal = draw_int(&a->all, 3);
        p->apart = draw_once_in(&a->all, 3);
        p->salt = draw_next(&a->all);
        const size_t left = w->bytes - used[p->to];
        p->bytes = draw_below(&a->all, (draw_once_in(&a->all, 2) && left > 64 ? 64 : left) + 1);
        p->offset = used[p->to] + draw_below(&a->all, left - p->bytes + 1);
        used[p->to] = p->offset + p->bytes;
    }
    return many;
}

static int put_do(struct actor *a, const struct random_window *w, const struct put *p,
                  struct buffer *from, tutti_request **request)
{
    tutti_comm *comm = a->families[w->family].comm;
    if (buffer_take(a, p->bytes, false, from))
        return 1;
    for (size_t i = 0; i < p->bytes; i++)
        from->data[i] = put_byte(p, i);
    const int signal = p->apart ? TUTTI_NO_SIGNAL : p->signal;
    if (draw_once_in(&a->own, 2))
        CHECK_OK(tutti_put(from->data, p->bytes, TUTTI_UINT8, p->to, w->window, p->offset, signal));
    else
        CHECK_OK(tutti_put_async(from->data, p->bytes, TUTTI_UINT8, p->to, w->window, p->offset,
                                 signal, NULL, request));
    if (p->apart)
        CHECK_OK(tutti_signal(p->to, p->signal, comm));
    return 0;
}

/* What others have put here is there, when they have all been waited for. */
static int puts_await(const struct actor *a, const struct random_window *w, const struct put *puts,
                      int many)
{
    const struct family *f = &a->families[w->family];
    for (int k = 0; k < many; k++)
        if (puts[k].to == f->own)
            CHECK_OK(tutti_wait_signal(puts[k].from, puts[k].signal, 1, f->comm));
    for (int k = 0; k < many; k++)
        for (size_t i = 0; i < puts[k].bytes && puts[k].to == f->own; i++)
            CHECK(w->memory.data[puts[k].offset + i] == put_byte(&puts[k], i));
    return 0;
}

int step_puts(struct actor *a)
{
    struct put puts[PUTS];
    struct buffer from[PUTS];
    tutti_request *requests[PUTS] = {NULL};
    const struct random_window *w = window_draw(a);
    if (!w)
        return 0;
    const struct family *f = &a->families[w->family];
    const int many = puts_draw(a, w, puts);
    memset(from, 0, sizeof from);
    if (f->own < 0)
        return 0;
    const bool grouped = draw_once_in(&a->own, 2);
    if (grouped)
        CHECK_OK(tutti_group_start());
    for (int k = 0; k < many; k++)
        if (puts[k].from == f->own && put_do(a, w, &puts[k], &from[k], &requests[k]))
            return 1;
    if (grouped)
        CHECK_OK(tutti_group_end());
    actor_dawdle(a);
    if (puts_await(a, w, puts, many))
        return 1;
    for (int k = 0; k < many; k++) {
        CHECK_OK(tutti_wait(requests[k]));
        if (buffer_release(a, &from[k]))
            return 1;
    }
    CHECK_OK(tutti_barrier(f->comm));
    return 0;
}

static int window_end(struct actor *a, struct random_window *w)
{
    if (w->window)
        tutti_window_destroy(w->window);
    w->live = false;
    return w->window ? buffer_release(a, &w->memory) : 0;
}

int step_window_destroy(struct actor *a)
{
    struct random_window *w = window_draw(a);
    return w ? window_end(a, w) : 0;
}

int windows_end(struct actor *a, int family)
{
    for (int k = 0; k < RANDOM_WINDOWS; k++)
        if (a->windows[k].live && (family < 0 || a->windows[k].family == family) &&
            window_end(a, &a->windows[k]))
            return 1;
    return 0;
}
