/* How fast two cores tell each other something (flight.h), with nothing around it: two threads,
 * each bound to a core, lines of memory, loads and stores.
 *
 * An exchange is what the smallest all-reduce between two ranks must do: each stores a word into a
 * line of its own and waits for the other's. Both lines fly at the same time, so it takes about as
 * long as one line one way, and less where the writer has the line back before it writes. Figures
 * are as for operations: the median of single exchanges, each timed by two looks at the clock (as
 * all contenders' are), and the mean of a batch. */
#include "bench/compare/flight.h"

#include "base/atomic.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { LINES = 256, SPINS_BEFORE_YIELD = 4096 };

struct line {
    _Alignas(64) _Atomic uint64_t word;
};

static void await(const struct line *line, uint64_t least)
{
    for (unsigned spins = 1; tti_load_acquire(&line->word) < least; spins++) {
        tti_cpu_relax();
        if (spins % SPINS_BEFORE_YIELD == 0)
            sched_yield(); /* somebody else's process has the other core */
    }
}

static int start(pthread_t *thread, void *(*body)(void *), void *argument)
{
    if (pthread_create(thread, NULL, body, argument) == 0)
        return 0;
    fprintf(stderr, "ideal: cannot start a thread\n");
    return 1;
}

static int two_cores(int cores)
{
    if (cores < 2)
        fprintf(stderr, "ideal: one core has no other\n");
    return cores >= 2;
}

/* ---- one way ---- */

enum { HOP_SAMPLES = 1000, PER_SAMPLE = 20, HOPS = HOP_SAMPLES * PER_SAMPLE };

/* Without the pause of a polite spin loop: it can be longer than the flight. */
static void await_turn(const struct line *line, uint64_t turn)
{
    for (unsigned spins = 1; tti_load_acquire(&line->word) != turn; spins++)
        if (spins % SPINS_BEFORE_YIELD == 0)
            sched_yield();
}

/* Answers odd turns with even ones. */
static void *answer(void *argument)
{
    struct line *line = argument;
    (void)peer_bind(1);
    for (uint64_t turn = 1; turn < 2 * HOPS; turn += 2) {
        await_turn(line, turn);
        tti_store_release(&line->word, turn + 1);
    }
    return NULL;
}

/* The median, which a few lost time slices do not move. */
int flight_hop(int cores)
{
    static struct line line;
    static double round_trips[HOP_SAMPLES];
    pthread_t other;
    /* The thread first: it inherits the cores that this one may use. */
    if (!two_cores(cores) || start(&other, answer, &line))
        return 1;
    (void)peer_bind(0);
    uint64_t turn = 0;
    for (int sample = 0; sample < HOP_SAMPLES; sample++) {
        double begin = peer_now_us();
        for (int i = 0; i < PER_SAMPLE; i++, turn += 2) {
            tti_store_release(&line.word, turn + 1);
            await_turn(&line, turn + 2);
        }
        round_trips[sample] = (peer_now_us() - begin) / PER_SAMPLE;
    }
    pthread_join(other, NULL);
    printf("{\"hop_ns\": %.1f}\n", peer_percentile(round_trips, HOP_SAMPLES, 50) * 1e3 / 2);
    return 0;
}

/* ---- both ways at once ---- */

enum { WARM = 1000, EXCHANGES = 5000 };

struct exchange {
    struct line lines[2][LINES]; /* [writer] */
    bool takes_back;             /* fetch the next line before it is written */
    double times[2][EXCHANGES], mean[2];
};

static void exchange_once(struct exchange *x, int t, uint64_t number)
{
    struct line *mine = x->lines[t];
    tti_store_release(&mine[number % LINES].word, number + 1);
    await(&x->lines[1 - t][number % LINES], number + 1);
    if (x->takes_back)
        tti_prefetch_write(&mine[(number + 1) % LINES]);
}

struct side {
    struct exchange *x;
    int t;
};

static void *exchange_all(void *argument)
{
    const struct side *side = argument;
    struct exchange *x = side->x;
    uint64_t number = 0;
    (void)peer_bind(side->t);
    for (; number < WARM; number++)
        exchange_once(x, side->t, number);
    double begin = peer_now_us();
    for (int i = 0; i < EXCHANGES; i++)
        exchange_once(x, side->t, number++);
    x->mean[side->t] = (peer_now_us() - begin) / EXCHANGES;
    for (int i = 0; i < EXCHANGES; i++) {
        begin = peer_now_us();
        exchange_once(x, side->t, number++);
        x->times[side->t][i] = peer_now_us() - begin;
    }
    return NULL;
}

/* {p50, p99, mean} of one way of doing it: average, maximum and average over the two sides. */
static int exchange_measure(bool takes_back, double figures[3])
{
    static struct exchange x;
    const struct side sides[2] = {{&x, 0}, {&x, 1}};
    pthread_t other;
    memset(&x, 0, sizeof x);
    x.takes_back = takes_back;
    if (start(&other, exchange_all, (void *)&sides[1]))
        return 1;
    exchange_all((void *)&sides[0]);
    pthread_join(other, NULL);
    figures[0] = figures[1] = figures[2] = 0;
    for (int t = 0; t < 2; t++) {
        double p99 = peer_percentile(x.times[t], EXCHANGES, 99);
        figures[0] += peer_percentile(x.times[t], EXCHANGES, 50) / 2;
        figures[1] = p99 > figures[1] ? p99 : figures[1];
        figures[2] += x.mean[t] / 2;
    }
    return 0;
}

/* The faster way counts, in each figure. */
int flight_exchange(int cores, const struct peer_options *options)
{
    cpu_set_t allowed; /* measuring binds this thread, and its children with it */
    double least[3], other[3];
    if (!two_cores(cores) || sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        exchange_measure(false, least) || sched_setaffinity(0, sizeof allowed, &allowed) != 0 ||
        exchange_measure(true, other))
        return 1;
    for (int i = 0; i < 3; i++)
        least[i] = other[i] < least[i] ? other[i] : least[i];
    for (int i = 0; i < options->size_count; i++)
        peer_print_row(options->sizes[i], 0, least, EXCHANGES, 0);
    return 0;
}
