/* Windows, puts, signals: the public calls, and what each does (coll/window.h). The rest is the
 * post's (coll/post.h). */
#include "coll/window.h"

#include "base/memory.h"
#include "coll/api_call.h"
#include "coll/board.h"
#include "coll/comm.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/group.h"
#include "coll/post.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- making: what the ranks tell each other of their parts ---- */

struct introduction {
    int32_t failed;     /* enum tutti_result: not OK if it could not make its part; then no more */
    struct tutti_id id; /* rank 0's, at the first window: where the post's communicator meets */
    uint64_t bytes, address, device;
    struct tti_region_place place;       /* of the memory */
    uint64_t board;                      /* the same of the rank's board (board.h), at the first: */
    struct tti_region_place board_place; /* where it is, in its process and in others */
};

/* Is it memory that the host may not touch? */
static enum tutti_result window_kind(struct tutti_window *window)
{
    struct tti_gpu_pointer info = {.kind = TTI_MEMORY_HOST};
    const struct tutti_comm *comm = window->comm;
    if (tti_gpu_side_ops(comm) && window->bytes > 0)
        TTI_TRY(tti_gpu_side_ops(comm)->pointer(window->memory, &info));
    window->device = info.kind == TTI_MEMORY_DEVICE || info.kind == TTI_MEMORY_MANAGED;
    window->index = info.device;
    return TUTTI_OK;
}

static enum tutti_result window_new(struct tutti_comm *comm, void *memory, size_t bytes,
                                    struct tutti_window **window)
{
    const size_t size = (size_t)comm->size;
    struct tutti_window *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->comm = comm;
    made->memory = memory;
    made->bytes = bytes;
    made->sizes = tti_calloc(size, sizeof *made->sizes);
    made->direct = tti_calloc(size, sizeof *made->direct);
    *window = made;
    return made->sizes && made->direct ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

void tti_window_free(struct tutti_window *window)
{
    if (!window)
        return;
    for (int r = 0; window->direct && r < window->comm->size; r++)
        tti_region_unmap(&window->direct[r]);
    free(window->sizes);
    free(window->direct);
    free(window);
}

/* Ranks of a host reach each other's memory, where not a network was asked for. */
static bool window_near(const struct tutti_comm *comm, int rank)
{
    const struct tti_peer *all = comm->peers.all;
    return rank == comm->rank ||
           (all[rank].host == all[comm->rank].host &&
            comm->peers.carriers[all[rank].carrier].ops->rank < TTI_FIRST_NETWORK_RANK);
}

/* Threads of a process have all of it in common. */
static bool window_same_process(const struct tutti_comm *comm, int rank)
{
    const struct tti_peer *all = comm->peers.all;
    return all[rank].public.process == all[comm->rank].public.process;
}

/* Those who hold the board of a rank beside itself. */
static bool window_holds(const struct tutti_comm *comm, int rank)
{
    return rank != comm->rank && window_near(comm, rank) && window_same_process(comm, rank);
}

/* Hand the boards of the others to the post; or, without one, give up those that are held. */
static void window_boards(struct tutti_comm *comm, const struct introduction *all)
{
    for (int r = 0; r < comm->size; r++) {
        struct tti_board *held = NULL;
        if (window_holds(comm, r))
            memcpy(&held, &all[r].board, sizeof held);
        if (!comm->post)
            tti_board_drop(held);
        else if (r != comm->rank && window_near(comm, r))
            tti_post_reach(comm->post, r, held, &all[r].board_place);
    }
}

/* NULL for one rank. `id` is rank 0's. */
static enum tutti_result window_wire(struct tutti_comm *comm, const struct tutti_id *id,
                                     struct tutti_comm **wire)
{
    struct tti_meeting meeting;
    if (comm->size == 1)
        return TUTTI_OK;
    TTI_TRY(tti_meeting_from_id(id, comm->rank, &meeting));
    return tti_comm_open_child(comm, &meeting, NULL, comm->rank, comm->size, wire);
}

/* The post of the communicator, at its first window. Takes the board. */
static enum tutti_result window_post(struct tutti_comm *comm, const struct introduction *all,
                                     struct tti_board *board)
{
    struct tutti_comm *wire = NULL;
    enum tutti_result result = window_wire(comm, &all[0].id, &wire);
    if (result == TUTTI_OK)
        result = tti_post_open(comm, wire, board, &comm->post);
    else
        tti_board_drop(board);
    window_boards(comm, all);
    return result;
}

/* Where the rank's part lies in this process, if it can. */
static void window_reach(struct tutti_window *window, int rank, const struct introduction *its)
{
    if (its->device || !window_near(window->comm, rank))
        return;
    if (window_same_process(window->comm, rank))
        memcpy(&window->direct[rank].memory, &its->address, sizeof its->address);
    else
        (void)tti_region_map(&its->place, window->sizes[rank], &window->direct[rank]);
}

/* Takes the board; NULL: there is a post already. */
static enum tutti_result window_join(struct tutti_window *window, const struct introduction *all,
                                     struct tti_board *board)
{
    struct tutti_comm *comm = window->comm;
    if (!comm->post)
        TTI_TRY(window_post(comm, all, board));
    if (window->device)
        TTI_TRY(tti_post_device(comm->post, tti_gpu_side_ops(comm), window->index));
    for (int r = 0; r < comm->size; r++) {
        window->sizes[r] = (size_t)all[r].bytes;
        window_reach(window, r, &all[r]);
    }
    tti_post_enlist(comm->post, window);
    return TUTTI_OK;
}

static enum tutti_result window_introduce_board(const struct tutti_comm *comm,
                                                struct introduction *mine, struct tti_board **board)
{
    int holders = 1;
    for (int r = 0; r < comm->size; r++)
        holders += window_holds(comm, r);
    TTI_TRY(tti_board_make(comm->size, holders, board));
    mine->board = (uintptr_t)*board;
    (void)tti_region_place(*board, tti_board_bytes(comm->size), &mine->board_place);
    return TUTTI_OK;
}

static enum tutti_result window_introduce(struct tutti_window *window, struct introduction *mine,
                                          struct tti_board **board)
{
    const struct tutti_comm *comm = window->comm;
    struct tti_region region = {.id = 0};
    TTI_TRY(window_kind(window));
    if (!window->device && tti_region_find(window->memory, window->bytes, &region)) {
        window->region = region.id;
        (void)tti_region_place(window->memory, window->bytes, &mine->place);
    }
    if (!comm->post)
        TTI_TRY(window_introduce_board(comm, mine, board));
    mine->bytes = window->bytes;
    mine->address = (uintptr_t)window->memory;
    mine->device = window->device;
    if (!comm->post && comm->rank == 0 && comm->size > 1)
        return tti_id_make(tti_comm_meeting_address(comm), false, &mine->id);
    return TUTTI_OK;
}

static enum tutti_result window_lacks(const struct tutti_comm *comm, int rank)
{
    return TTI_FAIL(TUTTI_ERR_PEER,
                    "rank %d (%s) could not make its part of the window (its own error says why)",
                    rank, comm->peers.all[rank].name);
}

/* Could all make their parts so far? Who could not is named, and nobody goes on to wait for it. */
static enum tutti_result window_introduced(const struct tutti_comm *comm,
                                           const struct introduction *all,
                                           const struct tti_error *own)
{
    if (own->code != TUTTI_OK)
        return tti_error_restore(own);
    for (int r = 0; r < comm->size; r++)
        if (all[r].failed != TUTTI_OK)
            return window_lacks(comm, r);
    return TUTTI_OK;
}

/* When it returns OK all ranks have their parts, and may be put into; or none has. */
static enum tutti_result window_agree(struct tutti_window *window, enum tutti_result own)
{
    struct tutti_comm *comm = window->comm;
    const uint32_t mine = (uint32_t)own;
    struct tti_error error;
    tti_error_save(&error, own);
    uint32_t *all = tti_calloc((size_t)comm->size, sizeof *all);
    enum tutti_result result =
        all ? tutti_all_gather(&mine, all, 1, TUTTI_UINT32, comm) : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK && own != TUTTI_OK)
        result = tti_error_restore(&error);
    for (int r = 0; r < comm->size && result == TUTTI_OK; r++)
        if (all[r] != TUTTI_OK)
            result = window_lacks(comm, r);
    free(all);
    return result;
}

/* All have a post from here on, or none has: whether there is one decides what the ranks do at the
 * next window. */
static enum tutti_result window_finish(struct tutti_window *window, const struct introduction *all,
                                       struct tti_board *board)
{
    struct tutti_comm *comm = window->comm;
    const bool first = !comm->post;
    struct tti_error error;
    tti_error_save(&error, window_agree(window, window_join(window, all, board)));
    if (error.code != TUTTI_OK && first && comm->post) {
        tti_post_delist(comm->post, window);
        tti_post_close(comm->post);
        comm->post = NULL;
    }
    return tti_error_restore(&error);
}

/* Nothing was made of the introductions: rank 0 listens for nobody any more. */
static void window_retract(struct tutti_comm *comm, const struct introduction *all,
                           const struct introduction *mine)
{
    struct tti_meeting meeting;
    if (!comm->post)
        window_boards(comm, all);
    if (mine->id.text[0] && tti_meeting_from_id(&mine->id, comm->rank, &meeting) == TUTTI_OK &&
        meeting.listen_fd >= 0)
        close(meeting.listen_fd);
}

static enum tutti_result window_make(struct tutti_comm *comm, struct tutti_window *window)
{
    struct introduction mine = {.bytes = 0};
    struct tti_board *board = NULL;
    struct introduction *all = tti_calloc((size_t)comm->size, sizeof *all);
    if (!all)
        return TUTTI_ERR_MEMORY;
    struct tti_error own, error;
    tti_error_save(&own, window_introduce(window, &mine, &board));
    mine.failed = own.code;
    enum tutti_result result = tutti_all_gather(&mine, all, sizeof mine, TUTTI_UINT8, comm);
    if (result == TUTTI_OK) {
        window->number = ++comm->windows;
        result = window_introduced(comm, all, &own);
        if (result == TUTTI_OK) {
            result = window_finish(window, all, board);
            board = NULL;
        } else {
            tti_error_save(&error, result);
            window_retract(comm, all, &mine);
            result = tti_error_restore(&error);
        }
    } else if (mine.id.text[0]) {
        tti_id_forget(&mine.id);
    }
    tti_board_drop(board);
    free(all);
    return result;
}

enum tutti_result tutti_window_create(void *memory, size_t bytes, tutti_comm *comm,
                                      tutti_window **window)
{
    struct tutti_window *made = NULL;
    if (!comm || !window || (!memory && bytes > 0))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_window_create: %s is NULL",
                        !comm     ? "comm"
                        : !window ? "window"
                                  : "memory");
    TTI_TRY(tti_group_refuse("tutti_window_create"));
    enum tutti_result result =
        comm->forked ? tti_comm_check(comm) : window_new(comm, memory, bytes, &made);
    if (result == TUTTI_OK)
        result = window_make(comm, made);
    if (result != TUTTI_OK) {
        tutti_window_destroy(made);
        return TTI_CONTEXT(result, "while making a window");
    }
    *window = made;
    return TUTTI_OK;
}

void tutti_window_destroy(tutti_window *window)
{
    if (!window || window->comm->forked) /* the post's lock may be held by a thread not here */
        return;
    if (window->comm->post)
        tti_post_delist(window->comm->post, window);
    tti_window_free(window);
}

/* ---- running ---- */

static enum tutti_result run_put(struct tutti_comm *comm, const struct tti_operation *o)
{
    struct tutti_window *window = o->window;
    char *direct = window->direct[o->root].memory;
    const size_t bytes = o->count * tutti_type_size(o->type);
    struct tti_post_head head = {
        .window = window->number, .offset = o->offset, .bytes = bytes, .signal = o->signal};
    if (o->root == comm->rank && bytes > 0)
        TTI_TRY(tti_post_store(comm->post, window, (size_t)o->offset, o->in, bytes));
    else if (direct && bytes > 0)
        memmove(direct + o->offset, o->in, bytes);
    if (o->root == comm->rank || direct)
        head.bytes = 0;
    if (head.bytes == 0 && o->signal == TUTTI_NO_SIGNAL)
        return o->root == comm->rank ? TUTTI_OK : tti_post_check(comm->post, o->root);
    if (o->root != comm->rank)
        return tti_post_send(comm->post, o->root, &head, o->in);
    tti_post_signal_self(comm->post, o->signal);
    return TUTTI_OK;
}

static enum tutti_result run_signal(struct tutti_comm *comm, const struct tti_operation *o)
{
    const struct tti_post_head head = {.signal = o->signal};
    if (o->root != comm->rank)
        return tti_post_send(comm->post, o->root, &head, NULL);
    tti_post_signal_self(comm->post, o->signal);
    return TUTTI_OK;
}

enum tutti_result tti_window_run(struct tutti_comm *comm, const struct tti_operation *o)
{
    if (o->alone == TTI_PUT)
        return run_put(comm, o);
    if (o->alone == TTI_SIGNAL)
        return run_signal(comm, o);
    return tti_post_wait(comm->post, o->root, o->signal, o->signals);
}

/* ---- the public operations ---- */

static enum tutti_result check_signal(const struct tti_operation *o, const struct tutti_comm *comm)
{
    const int least = o->alone == TTI_PUT ? TUTTI_NO_SIGNAL : 0;
    if (o->signal < least || o->signal >= TUTTI_SIGNALS)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: signal is %d; expected 0 to %d%s",
                        tti_operation_name(o), o->signal, TUTTI_SIGNALS - 1,
                        least < 0 ? ", or TUTTI_NO_SIGNAL" : "");
    if (comm && !comm->post)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "%s: the communicator has had no window yet; make one with "
                        "tutti_window_create on all ranks before",
                        tti_operation_name(o));
    return TUTTI_OK;
}

static enum tutti_result check_range(const struct tti_operation *o)
{
    const struct tutti_window *window = o->window;
    const struct tutti_comm *comm = window->comm;
    size_t bytes = 0;
    if (o->root < 0 || o->root >= comm->size)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "put: peer is %d; expected a rank from 0 to %d",
                        o->root, comm->size - 1);
    if (__builtin_mul_overflow(o->count, tutti_type_size(o->type), &bytes) ||
        o->offset > window->sizes[o->root] || bytes > window->sizes[o->root] - o->offset)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "put: count %zu of %s at offset %llu is beyond the end of the window, "
                        "which has %zu bytes at rank %d (%s)",
                        o->count, tutti_type_name(o->type), (unsigned long long)o->offset,
                        window->sizes[o->root], o->root, comm->peers.all[o->root].name);
    return TUTTI_OK;
}

static enum tutti_result call_put(const void *in, size_t count, enum tutti_type type, int peer,
                                  tutti_window *window, size_t offset, int signal, bool async,
                                  tutti_stream stream, tutti_request **request)
{
    struct tti_operation operation = {.collective = TUTTI_SEND_RECV,
                                      .alone = TTI_PUT,
                                      .in = in,
                                      .count = count,
                                      .type = type,
                                      .root = peer,
                                      .window = window,
                                      .offset = offset,
                                      .signal = signal};
    if (!window)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "put: window is NULL");
    TTI_TRY(check_signal(&operation, window->comm));
    TTI_TRY(check_range(&operation));
    return tti_api_call(window->comm, &operation, async, stream, request);
}

enum tutti_result tutti_put(const void *in, size_t count, enum tutti_type type, int peer,
                            tutti_window *window, size_t offset, int signal)
{
    return call_put(in, count, type, peer, window, offset, signal, false, NULL, NULL);
}

enum tutti_result tutti_put_async(const void *in, size_t count, enum tutti_type type, int peer,
                                  tutti_window *window, size_t offset, int signal,
                                  tutti_stream stream, tutti_request **request)
{
    return call_put(in, count, type, peer, window, offset, signal, true, stream, request);
}

static enum tutti_result call_signal(enum tti_alone alone, int peer, int signal, uint64_t count,
                                     tutti_comm *comm, bool async, tutti_stream stream,
                                     tutti_request **request)
{
    struct tti_operation operation = {.collective = TUTTI_SEND_RECV,
                                      .alone = alone,
                                      .type = TUTTI_UINT8,
                                      .root = peer,
                                      .signals = count,
                                      .signal = signal};
    TTI_TRY(check_signal(&operation, comm));
    if (count > INT64_MAX)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "wait_signal: count is %llu; at most 2^63 - 1",
                        (unsigned long long)count);
    return tti_api_call(comm, &operation, async, stream, request);
}

enum tutti_result tutti_signal(int peer, int signal, tutti_comm *comm)
{
    return call_signal(TTI_SIGNAL, peer, signal, 0, comm, false, NULL, NULL);
}

enum tutti_result tutti_signal_async(int peer, int signal, tutti_comm *comm, tutti_stream stream,
                                     tutti_request **request)
{
    return call_signal(TTI_SIGNAL, peer, signal, 0, comm, true, stream, request);
}

enum tutti_result tutti_wait_signal(int peer, int signal, uint64_t count, tutti_comm *comm)
{
    return call_signal(TTI_WAIT_SIGNAL, peer, signal, count, comm, false, NULL, NULL);
}

enum tutti_result tutti_wait_signal_async(int peer, int signal, uint64_t count, tutti_comm *comm,
                                          tutti_stream stream, tutti_request **request)
{
    return call_signal(TTI_WAIT_SIGNAL, peer, signal, count, comm, true, stream, request);
}
