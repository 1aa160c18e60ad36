/* See programs.h. */
#include "tests/random/programs.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

bool programs_read(int argc, char **argv, const char *some, struct programs *p)
{
    static const struct option names[] = {
        {"seed", required_argument, NULL, 's'},
        {"programs", required_argument, NULL, 'n'},
        {"steps", required_argument, NULL, 'm'},
        {"seconds", required_argument, NULL, 't'},
        {"device", no_argument, NULL, 'd'},
        {"over", required_argument, NULL, 'o'},
        {"verbose", no_argument, NULL, 'v'},
        {"trace", no_argument, NULL, 'x'},
        {"threads", no_argument, NULL, 'p'},
        {"kill", no_argument, NULL, 'k'},
        {NULL, 0, NULL, 0},
    };
    *p = (struct programs){.seed = 1, .programs = 100, .steps = 40, .seconds = 1e9};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (strchr("dok", c) && !strchr(some, c))
            return false;
        switch (c) {
        case 's':
            p->seed = strtoull(optarg, NULL, 10);
            break;
        case 'n':
            p->programs = atoi(optarg);
            break;
        case 'm':
            p->steps = atoi(optarg);
            break;
        case 't':
            p->seconds = strtod(optarg, NULL);
            break;
        case 'd':
            p->device = true;
            break;
        case 'o':
            p->over = optarg;
            break;
        case 'p':
            p->threads = true;
            break;
        case 'k':
            p->kill = true;
            break;
        case 'x':
            p->trace = true;
            break;
        case 'v':
            p->verbose = true;
            break;
        default:
            return false;
        }
    }
    /* Who is killed takes its process along. */
    return optind == argc && p->programs > 0 && p->steps > 0 && !(p->kill && p->threads);
}

double programs_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Returns whether it failed. */
static bool program_run(const struct programs *p, int limit, uint64_t seed,
                        void (*child)(const struct programs *p, uint64_t seed))
{
    const unsigned long long number = seed;
    const double until = programs_clock() + limit;
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        return true;
    }
    if (pid == 0) {
        setpgid(0, 0);
        child(p, seed);
        abort();
    }
    (void)setpgid(pid, pid); /* whoever is first */
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (programs_clock() > until) {
            kill(-pid, SIGABRT);
            waitpid(pid, &status, 0);
            fprintf(stderr, "program %llu: not over after %d s\n", number, limit);
            return true;
        }
        usleep(2000);
    }
    (void)kill(-pid, SIGKILL); /* ranks that waited for one that failed */
    if (WIFSIGNALED(status))
        fprintf(stderr, "program %llu: signal %d\n", number, WTERMSIG(status));
    else if (status != 0)
        fprintf(stderr, "program %llu: FAILED\n", number);
    return status != 0;
}

int programs_run(const struct programs *p, int limit,
                 void (*child)(const struct programs *p, uint64_t seed))
{
    const double until = programs_clock() + p->seconds;
    int done = 0, failed = 0;
    for (; done < p->programs && programs_clock() < until; done++)
        failed += program_run(p, limit, p->seed + (uint64_t)done, child);
    printf("%d programs of %d steps, seeds %llu to %llu: %d failed\n", done, p->steps,
           (unsigned long long)p->seed, (unsigned long long)p->seed + (unsigned long long)done - 1,
           failed);
    return failed ? 1 : 0;
}

void settings_draw(struct draw *d, const struct setting *settings, size_t n, int seldom, char *text,
                   size_t room)
{
    for (size_t k = 0; k < n; k++) {
        int values = 0;
        while (values < 4 && settings[k].values[values])
            values++;
        const char *value = settings[k].values[draw_int(d, values)];
        if (!draw_once_in(d, seldom) || getenv(settings[k].name))
            continue;
        const size_t used = strlen(text);
        setenv(settings[k].name, value, 1);
        snprintf(text + used, room - used, " %s=%s", settings[k].name, value);
    }
}

void device_settings_draw(struct draw *d, int seldom, char *text, size_t room)
{
    static const struct setting device_settings[] = {
        {"TUTTI_DEVICE_PATH", {"staged", "window", "coupled"}},
        {"TUTTI_DEVICE_MEMORY", {"1900K", "4M"}},
        {"TUTTI_DEVICE_CHUNK", {"8K", "64K"}},
        {"TUTTI_DEVICE_BUFFERS", {"window"}},
        {"TUTTI_DEVICE_MAP", {"1", "64K"}},
        {"TUTTI_DEVICE_LEVELS", {"0", "1"}},
        {"TUTTI_DEVICE_HANDLES", {"ipc"}},
        {"TUTTI_SIM_DEVICES", {"2", "3", "8"}},
    };
    settings_draw(d, device_settings, sizeof device_settings / sizeof *device_settings, seldom,
                  text, room);
}

/* ---- groups --------------------------------------------------------------------------------- */

enum { NESTED = 3 };

bool groups_ends(const struct groups *g, struct draw *d, int comm, bool messages)
{
    const bool other = g->several || g->comm != comm;
    return g->depth > 0 &&
           (draw_once_in(d, 3) || (g->comm >= 0 && other && (messages || g->messages)));
}

bool groups_begins(const struct groups *g, struct draw *d)
{
    return g->depth < NESTED && draw_once_in(d, 3);
}

void groups_ended(struct groups *g)
{
    if (--g->depth == 0)
        *g = (struct groups){.comm = -1};
}

void groups_begun(struct groups *g)
{
    g->depth++;
}

void groups_call(struct groups *g, int comm, bool messages)
{
    if (g->depth == 0)
        return;
    g->several |= g->comm >= 0 && g->comm != comm;
    g->comm = comm;
    g->messages |= messages;
}
