/* launch/spawn.c before a reader that is slower than the ranks, with a pipe of one page: whose turn
 * it is, what others write into the same pipe, a restart that is taken back. The job is run by a
 * process of its own (forked while there is one thread); the reader is the test. */
#include "launch/spawn.h"

#include "base/clock.h"
#include "tests/tutti_cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_S = 60, LINE = 100, TEXT = 1 << 20 };

struct run {
    pid_t pid;
    int in;   /* what the job prints */
    int out;  /* the pipe's other end */
    int size; /* of the pipe */
    char *text;
    size_t used; /* what was read of it */
};

/* Descriptors of the ranks: they read words from 9, and write some to 8. */
struct words {
    int go[2], said[2];
};

static void words_open(struct words *words)
{
    assert_int_equal(pipe(words->go), 0);
    assert_int_equal(pipe(words->said), 0);
}

static void words_close(struct words *words)
{
    for (int i = 0; i < 2; i++) {
        close(words->go[i]);
        close(words->said[i]);
    }
}

/* A shell's script as `nproc` ranks; what they and the launcher print goes into the run's pipe. */
static void run_start(struct run *run, const char *script, int nproc, int max_restarts,
                      const struct words *words)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    run->in = ends[0];
    run->out = ends[1];
    run->size = fcntl(run->out, F_SETPIPE_SZ, PIPE_BUF);
    assert_true(run->size >= PIPE_BUF);
    run->text = malloc(TEXT);
    run->used = 0;
    assert_non_null(run->text);
    run->pid = fork();
    if (run->pid != 0)
        return;
    char *const argv[] = {(char *)(uintptr_t) "bash", (char *)(uintptr_t) "-c",
                          (char *)(uintptr_t)script, NULL};
    const struct tti_spawn spawn = {.argv = argv,
                                    .nproc = nproc,
                                    .nnodes = 1,
                                    .prefix = true,
                                    .max_restarts = max_restarts,
                                    .program = "tuttirun"};
    int status = 1;
    signal(SIGPIPE, SIG_DFL);
    bool well = dup2(run->out, 1) == 1 && dup2(run->out, 2) == 2;
    if (words) /* both are above 9: cmocka and the pipes came first */
        well = well && dup2(words->said[1], 8) == 8 && dup2(words->go[0], 9) == 9;
    well = well && tti_spawn_run(&spawn, &status) == TUTTI_OK;
    _exit(well ? status : 99);
}

static int run_end(struct run *run)
{
    int status = 0;
    assert_int_equal(waitpid(run->pid, &status, 0), run->pid);
    close(run->in);
    free(run->text);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Read some; false at the end. */
static bool run_read(struct run *run, size_t bytes)
{
    assert_true(run->used + bytes < TEXT);
    const ssize_t got = read(run->in, run->text + run->used, bytes);
    assert_true(got >= 0);
    run->used += (size_t)got;
    run->text[run->used] = '\0';
    return got > 0;
}

/* ... when the pipe takes no further line of the ranks. */
static void run_read_full(struct run *run)
{
    const uint64_t deadline = tti_deadline_in(PATIENCE_S);
    int bytes = 0;
    do {
        assert_int_equal(ioctl(run->in, FIONREAD, &bytes), 0);
        if (bytes <= run->size - 2 * LINE)
            (void)poll(NULL, 0, 1);
    } while (bytes <= run->size - 2 * LINE && !tti_deadline_passed(deadline));
    assert_true(bytes > run->size - 2 * LINE);
    assert_true(run_read(run, (size_t)run->size));
}

static char a_line[LINE];

/* "FORMAT" with a_line in it: `yes` of lines that have LINE bytes with their prefix. */
static const char *script_of(char *script, size_t bytes, const char *format)
{
    memset(a_line, 'a', LINE - sizeof "[0] ");
    snprintf(script, bytes, format, a_line);
    return script;
}

/* A rank that prints without end leaves the others, and its own stderr, their turns. */
static void everybody_has_a_turn(void **state)
{
    (void)state;
    struct run run;
    struct words words;
    char script[1000];
    words_open(&words);
    run_start(&run,
              script_of(script, sizeof script,
                        "if [ $RANK = 0 ]; then\n"
                        "    (read x <&9; echo problem >&2; echo said >&8) & exec yes %s\n"
                        "fi\n"
                        "read x <&9; echo one; echo said >&8\n"
                        "read x <&9; echo two >&2; echo said >&8; exec sleep 600"),
              2, 0, &words);
    close(run.out);
    while (run.used < 4 * (size_t)run.size)
        run_read_full(&run);
    assert_int_equal(write(words.go[1], "\n\n\n", 3), 3);
    char said[15];
    for (size_t got = 0; got < sizeof said;) {
        ssize_t now = read(words.said[0], said + got, sizeof said - got);
        assert_true(now > 0);
        got += (size_t)now;
    }
    static const char *const lines[] = {"\n[0] problem\n", "\n[1] one\n", "\n[1] two\n"};
    int seen = 0;
    /* Each turn is of what a sink holds: some lines of a stream. */
    for (int turns = 0; turns < 50 && seen < 3; turns++) {
        run_read_full(&run);
        seen = 0;
        for (int i = 0; i < 3; i++)
            seen += strstr(run.text, lines[i]) != NULL;
    }
    assert_int_equal(seen, 3);
    assert_int_equal(kill(run.pid, SIGKILL), 0);
    assert_int_equal(waitpid(run.pid, NULL, 0), run.pid);
    close(run.in);
    free(run.text);
    words_close(&words);
}

/* Another that writes to the same pipe, as soon as there is room, has its lines between ours. */
static void lines_are_whole(void **state)
{
    (void)state;
    struct run run;
    char script[1000], other[60];
    int ours = 0, theirs = 0;
    memset(other, 'b', sizeof other);
    other[sizeof other - 1] = '\n';
    run_start(&run, script_of(script, sizeof script, "exec yes %s"), 1, 0, NULL);
    assert_int_equal(fcntl(run.out, F_SETFL, O_NONBLOCK), 0);
    /* (Every other time: a pipe of one page takes nothing of ours while there is a line in it.) */
    for (int turn = 0; run.used < 300 * 1024; turn++) {
        assert_true(run_read(&run, (size_t)run.size));
        if (turn % 2 == 0 && write(run.out, other, sizeof other) < 0)
            assert_int_equal(errno, EAGAIN);
    }
    assert_int_equal(kill(run.pid, SIGKILL), 0);
    assert_int_equal(waitpid(run.pid, NULL, 0), run.pid);
    close(run.in);
    close(run.out);
    char *end = NULL;
    for (char *at = run.text; (end = strchr(at, '\n')); at = end + 1) {
        const size_t length = (size_t)(end - at);
        const bool one = length == LINE - 1 && strncmp(at, "[0] a", 5) == 0 && end[-1] == 'a';
        const bool two = length == 59 && strspn(at, "b") == 59;
        if (!one && !two)
            print_error("\"%.*s\"\n", (int)length, at);
        assert_true(one || two);
        ours += one;
        theirs += two;
    }
    print_message("%d lines of ours, %d of the other's\n", ours, theirs);
    assert_true(ours > 0 && theirs > 0);
    free(run.text);
}

/* One that no pipe takes in one piece arrives all the same. */
static void long_line(void **state)
{
    (void)state;
    struct run run;
    run_start(&run, "printf '%06000d\\n%05000d\\n' 1 2", 1, 0, NULL);
    close(run.out);
    while (run_read(&run, 100))
        continue;
    assert_int_equal(run.used, 4 + 6001 + 4 + 5001);
    assert_int_equal(run.text[4 + 6000 - 1], '1');
    assert_true(strncmp(run.text + 4 + 6001, "[0] 0", 5) == 0);
    assert_int_equal(run_end(&run), 0);
}

/* A restart was announced, and the job is told to end before anybody has read it: what was
 * announced is taken back. */
static void restart_taken_back(void **state)
{
    (void)state;
    struct run run;
    run_start(&run,
              "echo run $TUTTI_RESTART_COUNT\n"
              "for i in {1..20}; do printf '%01000d\\n' $i >&2; done; exit 7",
              1, 1, NULL);
    close(run.out);
    /* The report begins; its lines do not go into the pipe, and the announcement is after them. */
    do
        assert_true(run_read(&run, 1));
    while (!strstr(run.text, "last lines on stderr:\n"));
    assert_int_equal(kill(run.pid, SIGTERM), 0);
    while (run_read(&run, 1000))
        continue;
    assert_null(strstr(run.text, "run 1\n"));
    /* (Nobody might have read for the 2 s after which it gives up: then there is neither.) */
    if (strstr(run.text, "; restart 1 of 1\n"))
        assert_non_null(
            strstr(run.text, "\ntuttirun: no restart after all: the job was sent Terminated\n"));
    assert_int_equal(run_end(&run), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_has_a_turn),
        cmocka_unit_test(restart_taken_back),
        cmocka_unit_test(long_line),
        cmocka_unit_test(lines_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
