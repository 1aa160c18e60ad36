/* ThreadSanitizer sees what the element kernels touch, although they only tell it (kernels.inc): a
 * kernel that races with a store to an operand's, or a load of a result's, first or last byte is
 * reported, and
 * none that has every byte to itself. Each case is a process of its own, as a report is to end it.
 */
#include "device/cpu/kernels.h"
#include "device/reduce.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 8192 + 5, BYTES = (8192 + 64) * 4, REPORTED = 66, OPERANDS = 4 };

/* Two results, two operands; `at`: where the other thread looks or writes. */
static _Alignas(64) unsigned char memory[OPERANDS][BYTES];
static unsigned char *at;

/* A crash is no report. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "handle_segv=0:exitcode=66";
}

typedef void kernel_run(const struct tti_kernels *k);

static void sum(const struct tti_kernels *k)
{
    k->combine[TUTTI_SUM][TUTTI_FLOAT32](memory[0], memory[2], memory[3], COUNT);
}
static void greatest(const struct tti_kernels *k)
{
    k->combine[TUTTI_MAX][TUTTI_INT32](memory[0], memory[2], memory[3], COUNT);
}
static void spread(const struct tti_kernels *k)
{
    k->spread_sum[TUTTI_INT32](memory[0], memory[1], memory[2], memory[3], COUNT, false);
}
static void spread_from_end(const struct tti_kernels *k)
{
    k->spread_sum[TUTTI_FLOAT32](memory[0], memory[1], memory[2], memory[3], COUNT, true);
}
static void streamed(const struct tti_kernels *k)
{
    k->stream_sum[TUTTI_FLOAT32](memory[0], memory[1], memory[2], memory[3], COUNT);
}
static void divided(const struct tti_kernels *k)
{
    k->divide[TUTTI_INT32](memory[0], memory[2], COUNT, 3);
}
static void multiplied(const struct tti_kernels *k)
{
    const float by = 3;
    k->multiply[TUTTI_FLOAT32](memory[0], memory[2], &by, COUNT);
}
static void widened(const struct tti_kernels *k)
{
    k->widen[TUTTI_FLOAT16](memory[0], memory[2], COUNT);
}
static void narrowed(const struct tti_kernels *k)
{
    k->narrow[TUTTI_FLOAT16](memory[0], memory[2], COUNT);
}
static void copied(const struct tti_kernels *k)
{
    k->copy_stream(memory[0], memory[2], (size_t)COUNT * 4);
}
static void copied_twice(const struct tti_kernels *k)
{
    if (k->copy_twice)
        k->copy_twice(memory[0], memory[1], memory[2], (size_t)COUNT * 4, false);
}

static const struct kernel_case {
    const char *name;
    kernel_run *run;
    size_t bytes[OPERANDS]; /* of an element of each place; 0: not touched */
} cases[] = {
    {"sum", sum, {4, 0, 4, 4}},
    {"greatest", greatest, {4, 0, 4, 4}},
    {"spread", spread, {4, 4, 4, 4}},
    {"spread from the end", spread_from_end, {4, 4, 4, 4}},
    {"streamed", streamed, {4, 4, 4, 4}},
    {"divided", divided, {4, 0, 4, 0}},
    {"multiplied", multiplied, {4, 0, 4, 0}},
    {"widened", widened, {4, 0, 2, 0}},
    {"narrowed", narrowed, {2, 0, 4, 0}},
    {"copied", copied, {4, 0, 4, 0}},
    {"copied twice", copied_twice, {4, 4, 4, 0}},
};

/* An operand is only read, so that only a store races with it; a result is stored. */
static void *goes_there(void *result)
{
    if (result)
        (void)*(volatile unsigned char *)at;
    else
        *(volatile unsigned char *)at = 1;
    return NULL;
}

/* The exit status of a process in which a thread goes to `where` and the kernel runs. */
static int status_of(const struct kernel_case *c, unsigned char *where, bool result)
{
    int status = 0;
    (void)fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        at = where;
        if (!freopen("/dev/null", "w", stderr) ||
            pthread_create(&thread, NULL, goes_there, result ? (void *)&at : NULL))
            _exit(1);
        c->run(tti_kernels_now());
        pthread_join(thread, NULL);
        exit(0); /* by which ThreadSanitizer says what it found */
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

/* The first byte, the last one, and, of one place, the one behind, which is nobody's. */
static int check_case(const struct kernel_case *c, const char *variant)
{
    int failed = 0;
    for (int place = 0; place < OPERANDS; place++) {
        const size_t end = COUNT * c->bytes[place];
        const size_t where[] = {0, end ? end - 1 : 0, end};
        const char *const names[] = {"first", "last", "behind"};
        for (int i = 0; i < (place == 0 ? 3 : end ? 2 : 1); i++) {
            const int expected = end && i < 2 ? REPORTED : 0;
            const int status = status_of(c, memory[place] + where[i], place < 2);
            if (status != expected)
                failed |= printf("%s, %s, place %d, %s: exit status %d, not %d\n", variant, c->name,
                                 place, names[i], status, expected) > 0;
        }
    }
    return failed;
}

int main(void)
{
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (cases[i].run != copied_twice || tti_kernels_now()->copy_twice)
            failed |= check_case(&cases[i], tti_simd_name());
    return failed;
}
