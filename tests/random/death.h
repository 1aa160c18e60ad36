/* The death of one process of a program drawn from a seed, as all of its processes know it. */
#ifndef TTI_TESTS_DEATH_H
#define TTI_TESTS_DEATH_H

#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

enum { DEATH_MOMENT_US = 4000 }; /* of a step: it may die so late in it */

/* Before the processes begin: memory that they share. Ends the program if there is none. */
void death_prepare(void);
/* This process dies: now, or after so many microseconds, in whatever it does then. */
void death_now(void);
void death_soon(useconds_t moment);
/* Of who died; 0: nobody yet. */
int death_pid(void);
/* For how long that has been so. */
double death_seconds(void);
/* Does the text name the process, as errors do ("rank 1 (host:PID)")? */
bool death_names(const char *text, int pid);

#endif
