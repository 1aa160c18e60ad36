/* launch/boot.c where ranks are waited for in vain, by others that must all be there by then: what
 * these are told at the deadline. Deadlines are long, for machines that are slow; hence all wait at
 * the same time, from before the first test on. */
#include "tests/launch/boot_ranks.h"
#include "tests/tutti_cmocka.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Seconds for what must succeed, and for what must not wait until then. */
enum { PATIENCE_S = 60 };
#define MISSING_SLACK_S 2.4   /* after the deadline, for saying who is missing ... */
#define IMPATIENT_SLACK_S 4.6 /* ... and where only one rank gave up */
#define REFUSED_SLACK_S 2.5   /* ... and for saying that nobody listens */

enum { VAIN_S = 8, VAIN_MOST = 5 };
static struct boot_rank missing[VAIN_MOST], impatient[3], secretive[3], absentees[3];
static struct boot_rank alone[64], unheard[2];
static const bool missing_start[VAIN_MOST] = {true, false, true, false, true};
static const bool impatient_start[3] = {true, true, false};
static const bool alone_start[64] = {true};
static const bool unheard_start[2] = {false, true};
static atomic_int absent_told, absent_right;

/* "within 7.98 s", of a rank that began a little after the others, is right, too. */
static bool tells_seconds(const char *text)
{
    const char *number = strstr(text, "within ");
    const double seconds = number ? strtod(number + strlen("within "), NULL) : 0;
    return seconds > VAIN_S / 2.0 && seconds <= VAIN_S;
}

static void absent_body(struct boot_rank *self)
{
    char all[3];
    if (self->rank == 1) { /* there, until the others have given up */
        while (absent_told < 2)
            (void)poll(NULL, 0, 5);
        return;
    }
    enum tutti_result result =
        tti_boot_all_gather(self->boot, "x", 1, all, tti_deadline_in(VAIN_S));
    absent_right +=
        result == TUTTI_ERR_TIMEOUT && tells_seconds(tutti_last_error()) &&
        strstr(tutti_last_error(), "rank 1 of 3 has not come to exchange 1 bytes within ");
    if (absent_right == 0)
        print_error("%s\n", tutti_last_error());
    absent_told++;
}

static int begin(void **state)
{
    (void)state;
    boot_ranks_init(missing, VAIN_MOST, VAIN_S, NULL);
    boot_ranks_init(impatient, 3, PATIENCE_S, NULL);
    impatient[1].deadline_s = VAIN_S;
    boot_ranks_init(secretive, 3, VAIN_S, NULL);
    secretive[1].meeting.secret[5] ^= 1;
    boot_ranks_init(absentees, 3, PATIENCE_S, absent_body);
    boot_ranks_init(alone, 64, VAIN_S, NULL);
    boot_ranks_init(unheard, 2, VAIN_S, NULL);
    boot_ranks_start(missing, VAIN_MOST, missing_start);
    boot_ranks_start(impatient, 3, impatient_start);
    boot_ranks_start(secretive, 3, NULL);
    boot_ranks_start(absentees, 3, NULL);
    boot_ranks_start(alone, 64, alone_start);
    boot_ranks_start(unheard, 2, unheard_start);
    return 0;
}

static void missing_ranks(void **state)
{
    (void)state;
    char where[64];
    boot_ranks_join(missing, VAIN_MOST, missing_start);
    snprintf(where, sizeof where, " s at 127.0.0.1:%d", missing[0].meeting.port);
    for (int k = 0; k < VAIN_MOST; k += 2) {
        assert_int_equal(missing[k].error.code, TUTTI_ERR_TIMEOUT);
        boot_expect_text(missing[k].error.text, "ranks 1, 3 of 5 have not joined");
        boot_expect_text(missing[k].error.text, where);
        assert_true(tells_seconds(missing[k].error.text));
        assert_true(missing[k].seconds < VAIN_S + MISSING_SLACK_S);
    }
}

static void many_missing(void **state)
{
    (void)state;
    boot_ranks_join(alone, 64, alone_start);
    assert_int_equal(alone[0].error.code, TUTTI_ERR_TIMEOUT);
    boot_expect_text(alone[0].error.text,
                     "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 55 more of 64 have not");
}

static void nobody_listens(void **state)
{
    (void)state;
    boot_ranks_join(unheard, 2, unheard_start);
    assert_int_equal(unheard[1].error.code, TUTTI_ERR_LINK);
    boot_expect_text(unheard[1].error.text, "rank 1 of 2 did not reach rank 0 at 127.0.0.1:");
    boot_expect_text(unheard[1].error.text, "Connection refused");
    assert_true(unheard[1].seconds < VAIN_S + REFUSED_SLACK_S);
}

/* The shorter patience counts, and the others are told. */
static void one_is_less_patient(void **state)
{
    (void)state;
    boot_ranks_join(impatient, 3, impatient_start);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(impatient[k].error.code, TUTTI_ERR_TIMEOUT);
        boot_expect_text(impatient[k].error.text, "rank 2 of 3 has not joined within ");
        assert_true(tells_seconds(impatient[k].error.text));
        assert_true(impatient[k].seconds < VAIN_S + IMPATIENT_SLACK_S);
    }
}

static void wrong_secret(void **state)
{
    (void)state;
    boot_ranks_join(secretive, 3, NULL);
    assert_int_equal(secretive[0].error.code, TUTTI_ERR_TIMEOUT);
    boot_expect_text(secretive[0].error.text, "rank 1 of 3 has not joined");
    assert_int_equal(secretive[2].error.code, TUTTI_ERR_TIMEOUT);
    assert_int_equal(secretive[1].error.code, TUTTI_ERR_LINK);
    boot_expect_text(secretive[1].error.text, "has another secret");
}

static void absent_from_a_gather(void **state)
{
    (void)state;
    boot_ranks_join(absentees, 3, NULL);
    assert_int_equal(absent_right, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_ranks),  cmocka_unit_test(many_missing),
        cmocka_unit_test(nobody_listens), cmocka_unit_test(one_is_less_patient),
        cmocka_unit_test(wrong_secret),   cmocka_unit_test(absent_from_a_gather),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
