/* One rank of a job that something befalls (faults.py): it makes a communicator, sums, and when
 * that fails says what it was told and when; goes on with the survivors if asked to; ends
 * everything; and counts what is left in its process. Lines on stdout: "SECONDS EVENT ...", in
 * CLOCK_MONOTONIC. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "tests/fault/process_holdings.h"
#include "tests/integration/device_calls.h"

#include <errno.h>
#include <getopt.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WARM_UP = 3, WRONG_FOR = 40, MOST_MS = 60000 };

static struct {
    size_t bytes;
    bool device, late;   /* late: waits for `go` before it shrinks */
    bool whole;          /* looks at every sum, not at one in some thousands */
    const char *pause;   /* "idle" or "destroy": wait there for the file `go` */
    const char *go;      /* also ends the work, where nothing is to fail */
    const char *misdeed; /* abort, leave, operation, count, type, root: at the fifth call */
    const char *at_log;  /* the first log line with this text ... */
    int signal;          /* ... brings this signal */
    long files, late_files, memory, late_memory; /* what is left to open; bytes; 0: as it is */
    int denied, denied_errno;                    /* a system call that fails from the start */
    int excluded;                                /* -1, or whom the survivors shrink without */
} flags = {.bytes = 1 << 20, .excluded = -1};

static void say(const char *event, const char *text)
{
    printf("%.6f %s %s\n", (double)tti_now_ns() / 1e9, event, text);
    fflush(stdout);
}

/* ---- scarcity ------------------------------------------------------------------------------- */

static void limit_to(int resource, rlim_t most)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0)
        abort();
    limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
    if (setrlimit(resource, &limit) != 0)
        abort();
}

/* So many more descriptors; so many more bytes of address space. */
static void limit_now(long files, long memory)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%ld", &pages) != 1)
        abort();
    fclose(statm);
    if (files)
        limit_to(RLIMIT_NOFILE, (rlim_t)(process_holdings(1).files + files));
    if (memory)
        limit_to(RLIMIT_AS, (rlim_t)(pages * sysconf(_SC_PAGESIZE) + memory));
}

static void deny(int call, int error)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((unsigned)error & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        abort();
}

/* ---- the work ------------------------------------------------------------------------------- */

static enum tutti_result wrong_call(const float *in, float *out, size_t count, tutti_comm *comm)
{
    if (strcmp(flags.misdeed, "count") == 0)
        return tutti_all_reduce(in, out, count / 2, TUTTI_FLOAT32, TUTTI_SUM, comm);
    if (strcmp(flags.misdeed, "type") == 0)
        return tutti_all_reduce(in, out, count, TUTTI_INT32, TUTTI_SUM, comm);
    if (strcmp(flags.misdeed, "operator") == 0)
        return tutti_all_reduce(in, out, count, TUTTI_FLOAT32, TUTTI_MAX, comm);
    return tutti_broadcast(in, out, count, TUTTI_FLOAT32, 0, comm);
}

static enum tutti_result one_call(float *in, float *out, size_t count, bool wrong, tutti_comm *comm)
{
    if (wrong)
        return wrong_call(in, out, count, comm);
    if (!flags.device)
        return tutti_all_reduce(in, out, count, TUTTI_FLOAT32, TUTTI_SUM, comm);
    const struct test_case all_reduce = {
        .collective = TUTTI_ALL_REDUCE, .type = TUTTI_FLOAT32, .op = TUTTI_SUM, .count = count};
    tutti_request *request = NULL;
    enum tutti_result result = device_start(&all_reduce, in, out, comm, &request);
    return result == TUTTI_OK ? tutti_wait(request) : result;
}

static bool gone_on(void)
{
    return flags.go && access(flags.go, F_OK) == 0;
}

static void wait_to_go_on(const char *where)
{
    say(where, "");
    for (int ms = 0; !gone_on() && ms < MOST_MS; ms += 5)
        (void)poll(NULL, 0, 5);
}

static enum tutti_result fail_with(enum tutti_result result, uint64_t begin)
{
    char text[1200];
    snprintf(text, sizeof text, "%d %.3f %s", (int)result, (double)(tti_now_ns() - begin) / 1e9,
             tutti_last_error());
    say("error", text);
    return result;
}

/* Now and then: has any rank seen the file? All must end at the same call. */
static enum tutti_result all_go_on(int k, tutti_comm *comm, bool *over)
{
    enum { EVERY = 8 };
    int seen = gone_on(), any = 0;
    *over = false;
    if (flags.pause || flags.misdeed || k % EVERY != EVERY - 1)
        return TUTTI_OK;
    TTI_TRY(tutti_all_reduce(&seen, &any, 1, TUTTI_INT32, TUTTI_MAX, comm));
    *over = any;
    return TUTTI_OK;
}

/* Every rank gives rank + 1, everywhere. `aside` is host memory for what lies on the device. */
static enum tutti_result fill(float *in, float *aside, size_t count, const tutti_comm *comm)
{
    float *to = flags.device ? aside : in;
    for (size_t i = 0; i < count; i++)
        to[i] = (float)(tutti_comm_rank(comm) + 1);
    if (!flags.device)
        return TUTTI_OK;
    TTI_TRY(device_copy(in, aside, count * sizeof *in));
    return device_settle();
}

static enum tutti_result look(const float *out, float *aside, size_t count, const tutti_comm *comm)
{
    int size = tutti_comm_size(comm);
    float sum = (float)(size * (size + 1)) / 2;
    if (flags.device) {
        TTI_TRY(device_copy(aside, out, count * sizeof *out));
        TTI_TRY(device_settle());
        out = aside;
    }
    for (size_t i = 0; i < count; i += flags.whole ? 1 : count / 64 + 1)
        if (out[i] != sum) {
            say("wrong", "a sum");
            break;
        }
    return TUTTI_OK;
}

static void pause_at(int k)
{
    if (k == WARM_UP)
        say("working", "");
    if (k == WARM_UP)
        limit_now(flags.late_files, flags.late_memory);
    if (k == WARM_UP && flags.pause)
        wait_to_go_on("pause");
    if (k > WARM_UP && flags.pause)
        (void)poll(NULL, 0, 1);
}

static enum tutti_result work(float *in, float *out, float *aside, tutti_comm *comm)
{
    size_t count = flags.bytes / sizeof *in;
    bool over = false;
    enum tutti_result filled = fill(in, aside, count, comm);
    if (filled != TUTTI_OK)
        return fail_with(filled, tti_now_ns());
    for (int k = 0; !over; k++) {
        bool fifth = flags.misdeed && k == WARM_UP + 1;
        if (fifth && strcmp(flags.misdeed, "leave") == 0)
            return say("leaves", ""), TUTTI_OK;
        if (fifth && strcmp(flags.misdeed, "abort") == 0)
            tutti_comm_abort(comm, "the user has asked for it");
        if (fifth)
            say("misdeed", flags.misdeed);
        uint64_t begin = tti_now_ns();
        enum tutti_result result =
            one_call(in, out, count, fifth && strcmp(flags.misdeed, "abort") != 0, comm);
        if (result == TUTTI_OK)
            result = all_go_on(k, comm, &over);
        if (result == TUTTI_OK && (!flags.misdeed || k <= WARM_UP))
            result = look(out, aside, count, comm);
        if (result != TUTTI_OK)
            return fail_with(result, begin);
        pause_at(k);
        over |= flags.misdeed && k > WRONG_FOR; /* nobody minds */
        if (k == WARM_UP && flags.pause && strcmp(flags.pause, "destroy") == 0)
            break;
    }
    say("done", "");
    return TUTTI_OK;
}

/* The survivors, as a communicator of their own. */
static void go_on(tutti_comm *comm)
{
    tutti_comm *fewer = NULL;
    char text[64];
    int one = 1, sum = 0;
    if (flags.late)
        wait_to_go_on("late");
    uint64_t begin = tti_now_ns();
    enum tutti_result result = tutti_comm_shrink(comm, &flags.excluded, 1, &fewer);
    if (result == TUTTI_OK)
        result = tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, fewer);
    if (result != TUTTI_OK)
        (void)fail_with(result, begin);
    snprintf(text, sizeof text, "%d ranks", sum);
    if (result == TUTTI_OK)
        say("shrunk", text);
    tutti_comm_destroy(fewer);
}

static enum tutti_result buffer_take(float **buffer)
{
    void *memory = NULL;
    TTI_TRY(flags.device
                ? device_gpu()->ops->alloc(device_gpu(), TTI_MEMORY_DEVICE, flags.bytes, &memory)
                : tutti_alloc(flags.bytes, &memory));
    *buffer = memory;
    return TUTTI_OK;
}

static void buffer_give(float *buffer)
{
    if (!flags.device)
        tutti_free(buffer);
    else if (buffer)
        device_gpu()->ops->free(device_gpu(), buffer);
}

static void use(tutti_comm *comm)
{
    float *in = NULL, *out = NULL, *aside = NULL;
    if (flags.device && device_begin(tutti_comm_rank(comm)) != 0)
        abort();
    enum tutti_result taken = buffer_take(&in);
    if (taken == TUTTI_OK)
        taken = buffer_take(&out);
    if (taken == TUTTI_OK && flags.device && !(aside = tti_calloc(1, flags.bytes)))
        taken = TUTTI_ERR_MEMORY;
    if (taken != TUTTI_OK) {
        (void)fail_with(taken, tti_now_ns());
    } else {
        if (work(in, out, aside, comm) != TUTTI_OK && flags.excluded >= 0)
            go_on(comm);
    }
    uint64_t begin = tti_now_ns();
    tutti_comm_destroy(comm);
    char text[40];
    snprintf(text, sizeof text, "%.3f", (double)(tti_now_ns() - begin) / 1e9);
    say("destroyed", text);
    free(aside);
    buffer_give(in);
    buffer_give(out);
    if (flags.device) {
        device_gpu()->ops->stream_destroy(device_gpu(), device_stream());
        device_gpu()->ops->close(device_gpu());
    }
}

/* How far the time of day is ahead of the monotonic clock, in seconds. */
static long clock_offset(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (long)now.tv_sec - (long)(tti_now_ns() / 1000000000);
}

/* Clocks that did not jump would make a row that shows nothing. */
static void tell_jump(long before)
{
    char text[40];
    const long jump = clock_offset() - before;
    snprintf(text, sizeof text, "%ld", jump);
    if (jump < -1 || jump > 1)
        say("jumped", text);
}

/* ---- the program ---------------------------------------------------------------------------- */

static void log_sink(enum tti_log_level level, const char *text)
{
    (void)level;
    if (flags.at_log && strstr(text, flags.at_log)) {
        flags.at_log = NULL;
        say("signal", text);
        (void)raise(flags.signal);
    }
}

static const struct option known[] = {
    {"bytes", required_argument, NULL, 'b'},
    {"device", no_argument, NULL, 'd'},
    {"pause", required_argument, NULL, 'p'},
    {"go", required_argument, NULL, 'g'},
    {"misdeed", required_argument, NULL, 'm'},
    {"at-log", required_argument, NULL, 'l'},
    {"signal", required_argument, NULL, 's'},
    {"files", required_argument, NULL, 'f'},
    {"late-files", required_argument, NULL, 'F'},
    {"memory", required_argument, NULL, 'a'},
    {"late-memory", required_argument, NULL, 'A'},
    {"deny", required_argument, NULL, 'D'},
    {"excluded", required_argument, NULL, 'x'},
    {"late", no_argument, NULL, 'L'},
    {"whole", no_argument, NULL, 'w'},
    {NULL, 0, NULL, 0},
};

static void parse_deny(const char *name)
{
    flags.denied = strcmp(name, "ftruncate") == 0       ? SYS_ftruncate
                   : strcmp(name, "eventfd2") == 0      ? SYS_eventfd2
                   : strcmp(name, "epoll_create1") == 0 ? SYS_epoll_create1
                                                        : SYS_memfd_create;
    flags.denied_errno = flags.denied == SYS_ftruncate ? ENOSPC : ENOMEM;
}

static void parse(int argc, char **argv)
{
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        long number = optarg ? strtol(optarg, NULL, 10) : 0;
        switch (c) {
        case 'b':
            flags.bytes = (size_t)number;
            break;
        case 'L':
            flags.late = true;
            break;
        case 'w':
            flags.whole = true;
            break;
        case 'd':
            flags.device = true;
            break;
        case 'p':
            flags.pause = optarg;
            break;
        case 'g':
            flags.go = optarg;
            break;
        case 'm':
            flags.misdeed = optarg;
            break;
        case 'l':
            flags.at_log = optarg;
            break;
        case 's':
            flags.signal = (int)number;
            break;
        case 'f':
            flags.files = number;
            break;
        case 'F':
            flags.late_files = number;
            break;
        case 'a':
            flags.memory = number;
            break;
        case 'A':
            flags.late_memory = number;
            break;
        case 'D':
            parse_deny(optarg);
            break;
        case 'x':
            flags.excluded = (int)number;
            break;
        default:
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    tutti_comm *comm = NULL;
    char text[100];
    parse(argc, argv);
    if (flags.at_log)
        tti_log_divert(TTI_LOG_DEBUG, log_sink);
    struct process_holdings before = process_holdings(1);
    const long offset = clock_offset();
    limit_now(flags.files, flags.memory);
    if (flags.denied)
        deny(flags.denied, flags.denied_errno);
    say("begins", "");
    uint64_t begin = tti_now_ns();
    enum tutti_result result = tutti_comm_create_from_env(NULL, &comm);
    if (result != TUTTI_OK) {
        (void)fail_with(result, begin);
    } else {
        say("ready", "");
        use(comm);
    }
    tell_jump(offset);
    struct process_holdings after = process_holdings(1);
    if (after.files != before.files || after.threads != before.threads ||
        after.segments != before.segments) {
        snprintf(text, sizeof text, "descriptors %+ld, threads %+ld, segments %+ld",
                 after.files - before.files, after.threads - before.threads,
                 after.segments - before.segments);
        say("left", text);
    } else {
        say("clean", "");
    }
    return result == TUTTI_OK ? 0 : 1;
}
