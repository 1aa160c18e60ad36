/* See death.h. */
#include "tests/random/death.h"

#include "tests/random/programs.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct death {
    _Atomic int pid;
    _Atomic double at; /* programs_clock() */
};
static struct death *death;

void death_prepare(void)
{
    void *memory =
        mmap(NULL, sizeof *death, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    death = memory;
}

void death_now(void)
{
    atomic_store(&death->at, programs_clock());
    atomic_store(&death->pid, getpid());
    (void)kill(getpid(), SIGKILL);
}

static void *death_thread(void *argument)
{
    const useconds_t *moment = argument;
    usleep(*moment);
    death_now();
    return NULL;
}

void death_soon(useconds_t moment)
{
    static useconds_t kept;
    pthread_t thread;
    kept = moment;
    if (pthread_create(&thread, NULL, death_thread, &kept) != 0)
        abort();
}

int death_pid(void)
{
    return atomic_load(&death->pid);
}

double death_seconds(void)
{
    return programs_clock() - atomic_load(&death->at);
}

bool death_names(const char *text, int pid)
{
    char name[32];
    snprintf(name, sizeof name, ":%d)", pid);
    return pid > 0 && strstr(text, name);
}
