/* A rank's part in a call of a random program: its buffers, the call, and what must come of it. */
#include "tests/integration/device_calls.h"
#include "tests/random/actor.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what lies where ------------------------------------------------------------------------ */

static void side_block(struct side *s, int from, int to, size_t count)
{
    const int k = s->blocks++;
    s->from[k] = from;
    s->to[k] = to;
    s->counts[k] = count;
}

/* One after another; or, where the call may say so, in any order and with gaps. */
static void side_lay(struct actor *a, struct side *s, bool may_spread)
{
    int order[RANDOM_RANKS];
    s->spread = may_spread && draw_once_in(&a->own, 2);
    for (int k = 0; k < s->blocks; k++)
        order[k] = k;
    for (int k = s->blocks - 1; k > 0 && s->spread; k--) {
        const int other = draw_int(&a->own, k + 1), was = order[k];
        order[k] = order[other];
        order[other] = was;
    }
    for (int k = 0; k < s->blocks; k++) {
        if (s->spread)
            s->span += draw_below(&a->own, 5);
        s->displs[order[k]] = s->span;
        s->span += s->counts[order[k]];
    }
}

static void sides_make(const struct call *c, int n, int me, struct side *in, struct side *out)
{
    const bool root = me == c->root;
    const enum tutti_collective what = c->collective;
    const bool all_in = what == TUTTI_REDUCE_SCATTER || what == TUTTI_ALL_TO_ALL ||
                        what == TUTTI_SEND_RECV || (what == TUTTI_SCATTER && root);
    const bool all_out = what == TUTTI_ALL_GATHER || what == TUTTI_ALL_TO_ALL ||
                         what == TUTTI_SEND_RECV || (what == TUTTI_GATHER && root);
    for (int k = 0; k < n && all_in; k++)
        side_block(in, me, k, c->counts[me][k]);
    for (int k = 0; k < n && all_out; k++)
        side_block(out, k, what == TUTTI_ALL_TO_ALL || what == TUTTI_SEND_RECV ? me : 0,
                   c->counts[k][me]);
    if (what == TUTTI_ALL_REDUCE || what == TUTTI_REDUCE || what == TUTTI_ALL_GATHER ||
        what == TUTTI_GATHER || (what == TUTTI_BROADCAST && root))
        side_block(in, me, 0, c->counts[me][0]);
    if (what == TUTTI_ALL_REDUCE || (what == TUTTI_REDUCE && root))
        side_block(out, -1, 0, c->counts[0][0]);
    if (what == TUTTI_REDUCE_SCATTER)
        side_block(out, -1, me, c->counts[0][me]);
    if (what == TUTTI_BROADCAST)
        side_block(out, c->root, 0, c->counts[0][0]);
    if (what == TUTTI_SCATTER)
        side_block(out, c->root, me, c->counts[c->root][me]);
}

/* What the side's blocks hold: inputs before the call, outputs after it. */
static void side_put(const struct call *c, const struct family *f, const struct side *s, char *at)
{
    const size_t size = tutti_type_size(c->type);
    double values[VALUES_AT_A_TIME];
    for (int k = 0; k < s->blocks; k++)
        for (size_t e = 0, n; e < s->counts[k]; e += n) {
            for (n = 0; n < VALUES_AT_A_TIME && e + n < s->counts[k]; n++)
                values[n] = s->from[k] < 0 ? value_reduced(c, f, s->to[k], e + n)
                                           : value_of(c, s->from[k], s->to[k], e + n);
            values_put(at + (s->displs[k] + e) * size, c->type, values, n);
        }
}

int call_prepare(struct actor *a, const struct call *call, struct active **active)
{
    const struct family *f = &a->families[call->family];
    const size_t size = tutti_type_size(call->type);
    struct active *x = NULL;
    for (int k = 0; k < RANDOM_ACTIVE && !x; k++)
        x = a->active[k].used ? NULL : &a->active[k];
    CHECK(x);
    memset(x, 0, sizeof *x);
    x->used = true;
    x->call = *call;
    sides_make(call, f->size, f->own, &x->in_side, &x->out_side);
    const struct side *in = &x->in_side, *out = &x->out_side;
    side_lay(a, &x->in_side, call->uneven && in->blocks > 1);
    side_lay(a, &x->out_side, call->uneven && out->blocks > 1);
    x->aliased = call->in_place && in->blocks > 0 && out->blocks > 0;
    if (!x->aliased) {
        if (buffer_take(a, in->span * size, call->device, &x->in) ||
            buffer_take(a, out->span * size, call->device, &x->out))
            return 1;
        x->in_at = x->in.data;
        x->out_at = x->out.data;
    } else { /* the longer one is the whole */
        const bool into = in->blocks > out->blocks;
        if (buffer_take(a, (into ? in : out)->span * size, call->device, &x->in))
            return 1;
        x->in_at = x->out_at = x->in.data;
        if (into)
            x->out_at += in->displs[f->own] * size;
        if (out->blocks > in->blocks)
            x->in_at += out->displs[f->own] * size;
    }
    side_put(call, f, in, x->in_at);
    *active = x;
    return 0;
}

/* ---- the call ------------------------------------------------------------------------------- */

static char *place_of(const char *at, const struct buffer *b)
{
    return b->device ? b->device + (at - b->data) : b->data + (at - b->data);
}

/* The buffers that the call is given. One of which nothing is used may be NULL. */
static void places(struct actor *a, const struct active *x, const void **in, void **out)
{
    const struct buffer *second = x->aliased ? &x->in : &x->out;
    *in = place_of(x->in_at, &x->in);
    *out = place_of(x->out_at, second);
    if (x->in_side.blocks == 0 && draw_once_in(&a->own, 2))
        *in = draw_once_in(&a->own, 2) ? NULL : *out;
    if (x->out_side.blocks == 0 && draw_once_in(&a->own, 2))
        *out = NULL;
}

static enum tutti_result even_start(const struct active *x, const struct family *f,
                                    enum tutti_op op, const void *in, void *out, bool async,
                                    tutti_stream stream, tutti_request **request)
{
    const struct call *c = &x->call;
    const size_t n = c->counts[0][0];
    tutti_comm *comm = f->comm;
    switch (c->collective) {
    case TUTTI_ALL_REDUCE:
        return async ? tutti_all_reduce_async(in, out, n, c->type, op, comm, stream, request)
                     : tutti_all_reduce(in, out, n, c->type, op, comm);
    case TUTTI_BROADCAST:
        return async ? tutti_broadcast_async(in, out, n, c->type, c->root, comm, stream, request)
                     : tutti_broadcast(in, out, n, c->type, c->root, comm);
    case TUTTI_REDUCE:
        return async ? tutti_reduce_async(in, out, n, c->type, op, c->root, comm, stream, request)
                     : tutti_reduce(in, out, n, c->type, op, c->root, comm);
    case TUTTI_REDUCE_SCATTER:
        return async ? tutti_reduce_scatter_async(in, out, n, c->type, op, comm, stream, request)
                     : tutti_reduce_scatter(in, out, n, c->type, op, comm);
    case TUTTI_ALL_GATHER:
        return async ? tutti_all_gather_async(in, out, n, c->type, comm, stream, request)
                     : tutti_all_gather(in, out, n, c->type, comm);
    case TUTTI_ALL_TO_ALL:
        return async ? tutti_all_to_all_async(in, out, n, c->type, comm, stream, request)
                     : tutti_all_to_all(in, out, n, c->type, comm);
    case TUTTI_GATHER:
        return async ? tutti_gather_async(in, out, n, c->type, c->root, comm, stream, request)
                     : tutti_gather(in, out, n, c->type, c->root, comm);
    case TUTTI_SCATTER:
        return async ? tutti_scatter_async(in, out, n, c->type, c->root, comm, stream, request)
                     : tutti_scatter(in, out, n, c->type, c->root, comm);
    default:
        return async ? tutti_barrier_async(comm, stream, request) : tutti_barrier(comm);
    }
}

/* The counts are the caller's again when the call returns: they are overwritten then. */
static enum tutti_result uneven_start(const struct active *x, const struct family *f,
                                      enum tutti_op op, const void *in, void *out, bool async,
                                      tutti_stream stream, tutti_request **request)
{
    const struct call *c = &x->call;
    struct side i = x->in_side, o = x->out_side;
    tutti_comm *comm = f->comm;
    const bool root = f->own == c->root;
    const size_t *in_displs = i.spread ? i.displs : NULL;
    const size_t *out_displs = o.spread ? o.displs : NULL;
    enum tutti_result result = TUTTI_OK;
    switch (c->collective) {
    case TUTTI_REDUCE_SCATTER:
        result = async ? tutti_reduce_scatter_v_async(in, out, i.counts, in_displs, c->type, op,
                                                      comm, stream, request)
                       : tutti_reduce_scatter_v(in, out, i.counts, in_displs, c->type, op, comm);
        break;
    case TUTTI_ALL_GATHER:
        result = async ? tutti_all_gather_v_async(in, out, o.counts, out_displs, c->type, comm,
                                                  stream, request)
                       : tutti_all_gather_v(in, out, o.counts, out_displs, c->type, comm);
        break;
    case TUTTI_ALL_TO_ALL:
        result = async ? tutti_all_to_all_v_async(in, i.counts, in_displs, out, o.counts,
                                                  out_displs, c->type, comm, stream, request)
                       : tutti_all_to_all_v(in, i.counts, in_displs, out, o.counts, out_displs,
                                            c->type, comm);
        break;
    case TUTTI_GATHER:
        result = async ? tutti_gather_v_async(in, i.counts[0], out, root ? o.counts : NULL,
                                              out_displs, c->type, c->root, comm, stream, request)
                       : tutti_gather_v(in, i.counts[0], out, root ? o.counts : NULL, out_displs,
                                        c->type, c->root, comm);
        break;
    default:
        result = async ? tutti_scatter_v_async(in, root ? i.counts : NULL, in_displs, out,
                                               o.counts[0], c->type, c->root, comm, stream, request)
                       : tutti_scatter_v(in, root ? i.counts : NULL, in_displs, out, o.counts[0],
                                         c->type, c->root, comm);
        break;
    }
    memset(i.counts, 0x5a, sizeof i.counts);
    memset(i.displs, 0x5a, sizeof i.displs);
    memset(o.counts, 0x5a, sizeof o.counts);
    memset(o.displs, 0x5a, sizeof o.displs);
    return result;
}

/* Sends and receives of this rank, in an order of its own. Device memory has no blocking form. */
static int messages_start(struct actor *a, struct active *x, const char *in, char *out, bool async,
                          tutti_stream stream)
{
    const struct call *c = &x->call;
    const struct family *f = &a->families[c->family];
    const size_t size = tutti_type_size(c->type);
    const int turned = draw_int(&a->own, f->size);
    const bool sends_last = draw_once_in(&a->own, 2);
    CHECK_OK(tutti_group_start());
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < f->size; i++) {
            const int k = (i + turned) % f->size;
            const bool sends = (half == 1) == sends_last;
            const struct side *s = sends ? &x->in_side : &x->out_side;
            tutti_request **request = async ? &x->requests[x->waiting] : NULL;
            if (s->counts[k] == 0 && !c->empties)
                continue;
            const size_t at = s->displs[k] * size, n = s->counts[k];
            if (sends && !async && !c->device)
                CHECK_OK(tutti_send(in + at, n, c->type, k, f->comm));
            else if (sends)
                CHECK_OK(tutti_send_async(in + at, n, c->type, k, f->comm, stream, request));
            else if (!async && !c->device)
                CHECK_OK(tutti_recv(out + at, n, c->type, k, f->comm));
            else
                CHECK_OK(tutti_recv_async(out + at, n, c->type, k, f->comm, stream, request));
            x->waiting += async;
        }
    CHECK_OK(tutti_group_end());
    return 0;
}

int call_start(struct actor *a, struct active *x, bool async)
{
    const struct call *c = &x->call;
    const struct family *f = &a->families[c->family];
    const tutti_stream stream = c->device ? device_stream() : NULL;
    const void *in = NULL;
    void *out = NULL;
    char text[256];
    places(a, x, &in, &out);
    if (c->device && !x->aliased)
        CHECK_OK(device_copy(x->out.device_base, x->out.base, x->out.bytes));
    if (c->device)
        CHECK_OK(device_copy(x->in.device_base, x->in.base, x->in.bytes));
    actor_tell(a, "%s%s", call_text(c, text, sizeof text), async ? ", with a request" : "");
    if (c->collective == TUTTI_SEND_RECV)
        return messages_start(a, x, in, out, async, stream);
    tutti_request **request = async ? &x->requests[x->waiting++] : NULL;
    const enum tutti_op op = c->op == TUTTI_OP_USER ? f->op : c->op;
    const enum tutti_result result = (c->uneven ? uneven_start : even_start)(
        x, f, op, in, out, async || c->device, stream, request);
    if (result != TUTTI_OK)
        fprintf(stderr, "seed %llu step %d rank %d: %s: %s\n", (unsigned long long)a->seed, a->step,
                a->rank, call_text(c, text, sizeof text), tutti_last_error());
    return result != TUTTI_OK;
}

/* ---- what came of it ------------------------------------------------------------------------ */

static int buffer_compare(const struct buffer *b, const char *expected, const char *which)
{
    if (memcmp(b->base, expected, b->bytes) == 0)
        return 0;
    size_t i = 0;
    while (b->base[i] == expected[i])
        i++;
    fprintf(stderr, "%s: byte %td of the data (%zu of %zu) is %#x, not %#x\n", which,
            b->base + i - b->data, i, b->bytes, (unsigned char)b->base[i],
            (unsigned char)expected[i]);
    return 1;
}

/* What must be there is written over what was before the call, in memory like it. */
static int call_check(struct actor *a, struct active *x)
{
    const struct family *f = &a->families[x->call.family];
    const size_t most = x->in.bytes > x->out.bytes ? x->in.bytes : x->out.bytes;
    char *expected = malloc(most);
    CHECK(expected);
    memset(expected, RANDOM_GUARD, most);
    side_put(&x->call, f, &x->in_side, expected + (x->in_at - x->in.base));
    if (x->aliased)
        side_put(&x->call, f, &x->out_side, expected + (x->out_at - x->in.base));
    int bad = buffer_compare(&x->in, expected, x->aliased ? "in place" : "in");
    if (!x->aliased) {
        memset(expected, RANDOM_GUARD, most);
        side_put(&x->call, f, &x->out_side, expected + (x->out_at - x->out.base));
        bad |= buffer_compare(&x->out, expected, "out");
    }
    free(expected);
    return bad;
}

static int requests_finish(struct actor *a, struct active *x)
{
    const int how = draw_int(&a->own, 3);
    for (int k = 0; k < x->waiting && how == 0; k++)
        while (tutti_test(x->requests[k]) == TUTTI_IN_PROGRESS)
            usleep(20);
    if (how == 1) {
        CHECK_OK(tutti_wait_all(x->requests, (size_t)x->waiting));
    } else {
        for (int k = 0; k < x->waiting; k++) /* in either order */
            CHECK_OK(tutti_wait(x->requests[a->step % 2 ? k : x->waiting - 1 - k]));
    }
    x->waiting = 0;
    return 0;
}

int call_finish(struct actor *a, struct active *x)
{
    char text[256];
    actor_tell(a, "finish %s", call_text(&x->call, text, sizeof text));
    int bad = requests_finish(a, x);
    if (!bad && x->call.device) {
        CHECK_OK(device_copy(x->in.base, x->in.device_base, x->in.bytes));
        if (!x->aliased)
            CHECK_OK(device_copy(x->out.base, x->out.device_base, x->out.bytes));
        CHECK_OK(device_settle());
        CHECK_OK(tutti_comm_error(a->families[x->call.family].comm));
    }
    bad = bad || call_check(a, x);
    if (bad)
        fprintf(stderr, "seed %llu step %d rank %d: %s\n", (unsigned long long)a->seed, a->step,
                a->rank, call_text(&x->call, text, sizeof text));
    x->used = false;
    return buffer_release(a, &x->in) || buffer_release(a, &x->out) || bad;
}

int call_finish_all(struct actor *a, int family)
{
    const int first = draw_int(&a->own, RANDOM_ACTIVE);
    for (int k = 0; k < RANDOM_ACTIVE; k++) {
        struct active *x = &a->active[(first + k) % RANDOM_ACTIVE];
        if (x->used && (family < 0 || x->call.family == family) && call_finish(a, x))
            return 1;
    }
    return 0;
}
