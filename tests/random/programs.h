/* What programs drawn from a seed have in common, whatever they call: options, settings, and that
 * each is a process of its own, whose failure or standstill is told with its seed. */
#ifndef TTI_TESTS_PROGRAMS_H
#define TTI_TESTS_PROGRAMS_H

#include "tests/random/chance.h"

#include <stddef.h>

struct programs {
    uint64_t seed;
    int programs, steps;
    double seconds;
    bool device, threads, kill, verbose, trace;
    const char *over;
};

/* Seconds since some moment, the same for all processes. */
double programs_clock(void);

/* One setting, in the environment, in some programs. */
struct setting {
    const char *name;
    const char *values[4];
};

/* Read the options, of which `some` are those that not all have ("dk": --device and --kill). False:
 * they are wrong. */
bool programs_read(int argc, char **argv, const char *some, struct programs *p);
/* Run `child` for each seed, in a process that leads its process group and that `child` exits with
 * 0 if all was right; one that is not over after `limit` seconds is ended. Says how many failed;
 * returns the exit status. */
int programs_run(const struct programs *p, int limit,
                 void (*child)(const struct programs *p, uint64_t seed));

/* Set each once in `seldom` programs, unless it is set; `text` (of `room` bytes) says so. */
void settings_draw(struct draw *d, const struct setting *settings, size_t n, int seldom, char *text,
                   size_t room);

/* Those of operations on device memory. */
void device_settings_draw(struct draw *d, int seldom, char *text, size_t room);

/* The groups that a rank has open, and what they have. Those of messages are of one communicator: a
 * group has all of a communicator's at once, before what other communicators' calls stand between
 * them, on which a rank may wait that has no group. */
struct groups {
    int depth, comm; /* -1: no call yet */
    bool several, messages;
};
/* Before a call of that communicator: is one to be ended (asked until it is not), or begun? */
bool groups_ends(const struct groups *g, struct draw *d, int comm, bool messages);
bool groups_begins(const struct groups *g, struct draw *d);
/* One was ended or begun; the call is in those that are open. */
void groups_ended(struct groups *g);
void groups_begun(struct groups *g);
void groups_call(struct groups *g, int comm, bool messages);

#endif
