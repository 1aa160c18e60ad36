/* launch/boot_ask.c where a report comes in two parts, with the verdict in between: the second
 * part is of a question that is over, and must neither go where the report was to go (which
 * AddressSanitizer sees) nor be taken for an answer to the next question. */
#include "launch/boot_socket.h"
#include "launch/boot_wire.h"
#include "tests/launch/boot_ranks.h"
#include "tests/tutti_cmocka.h"

#include <poll.h>
#include <stdatomic.h>

/* Seconds for what must succeed. */
enum { PATIENCE_S = 60, SIZE = 3, ASKER = 1, SLOW = 2 };
enum { FIRST = 1000, REST = 2000, AGAIN = 5 }; /* bytes of SLOW's reports */

static atomic_int merges, heard, wrong;
static atomic_bool done;

static size_t ask_report(void *context, void *message, size_t room)
{
    (void)context, (void)room;
    memset(message, 'r', 1);
    return 1;
}

/* Of SLOW there is what it said to this question, or nothing. */
static enum tutti_result ask_merge(void *context, const struct tti_boot_report *reports, int size,
                                   int asker, enum tutti_result code, const char *text,
                                   char *verdict, size_t room)
{
    const struct tti_boot_report *slow = &reports[SLOW];
    (void)context, (void)text, (void)verdict, (void)room;
    wrong += size != SIZE || asker != ASKER || code != TUTTI_OK;
    if (slow->presence == TTI_BOOT_REPORTED) {
        const bool right =
            slow->message && slow->bytes == AGAIN && memcmp(slow->message, "again", AGAIN) == 0;
        wrong += !right;
        heard += right;
    }
    merges++;
    return TUTTI_OK;
}

static void ask_failed(void *context)
{
    (void)context;
    wrong++;
}

/* Until a question, since `before`. */
static bool await_question(struct tti_boot *boot, uint64_t before)
{
    int who = -1;
    while (tti_boot_asked(boot) == before && !done) {
        struct pollfd wait = {.fd = tti_boot_fd(boot), .events = POLLIN};
        (void)poll(&wait, 1, 20);
        wrong += tti_boot_poll(boot, &who) != TUTTI_OK;
    }
    return !done;
}

static void tell(struct tti_boot *boot, const void *data, size_t bytes)
{
    wrong += tti_socket_send(tti_boot_fd(boot), data, bytes, tti_deadline_in(PATIENCE_S)) != 0;
}

static void report_header(struct tti_boot *boot, size_t bytes)
{
    const struct tti_boot_frame frame = {.type = TTI_BOOT_REPORT, .rank = SLOW, .bytes = bytes};
    uint8_t header[TTI_BOOT_HEADER_BYTES];
    tti_boot_frame_encode(&frame, header);
    tell(boot, header, sizeof header);
}

/* It has no watch: its reports are what is written here. */
static void slow_rank(struct tti_boot *boot)
{
    char bytes[FIRST + REST];
    uint64_t asked = 0;
    memset(bytes, 'x', sizeof bytes);
    if (!await_question(boot, asked))
        return;
    asked = tti_boot_asked(boot);
    report_header(boot, sizeof bytes);
    tell(boot, bytes, FIRST);
    for (bool open = true; await_question(boot, asked); open = false) {
        asked = tti_boot_asked(boot);
        if (open)
            tell(boot, bytes, REST);
        report_header(boot, AGAIN);
        tell(boot, "again", AGAIN);
    }
}

/* The first question is over when there has been a verdict. */
static void asking_rank(struct tti_boot *boot)
{
    const uint64_t deadline = tti_deadline_in(PATIENCE_S);
    for (int count = 0; heard == 0 && !tti_deadline_passed(deadline); count++) {
        tti_boot_ask(boot, TUTTI_OK, "");
        while (merges == count && !tti_deadline_passed(deadline))
            (void)poll(NULL, 0, 2);
    }
    done = true;
}

static void ask_body(struct boot_rank *self)
{
    const struct tti_boot_watch watch = {self, ask_report, ask_merge, ask_failed};
    char all[SIZE];
    if (self->rank != SLOW)
        wrong += tti_boot_watch_start(self->boot, &watch) != TUTTI_OK;
    wrong += tti_boot_all_gather(self->boot, "x", 1, all, tti_deadline_in(PATIENCE_S)) != TUTTI_OK;
    if (self->rank == SLOW)
        slow_rank(self->boot);
    if (self->rank == ASKER)
        asking_rank(self->boot);
    while (!done)
        (void)poll(NULL, 0, 5);
}

static void report_in_two_parts(void **state)
{
    (void)state;
    struct boot_rank ranks[SIZE];
    boot_ranks_init(ranks, SIZE, PATIENCE_S, ask_body);
    boot_ranks_run(ranks, SIZE, NULL);
    assert_int_equal(wrong, 0);
    assert_true(heard > 0);
    assert_true(merges > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(report_in_two_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
