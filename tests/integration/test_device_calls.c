/* What the device tests stand on (device_calls.h): a call whose work is not through at the deadline
 * ends its process with a reason, and does not come back to a caller who frees the buffers. */
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 3000, CAME_BACK = 3 };

/* The call's work waits for a word that comes only after the call. */
static int held(tutti_comm *comm, void *argument)
{
    static float in[COUNT], out[COUNT];
    const struct test_case c = {
        .collective = TUTTI_ALL_REDUCE, .type = TUTTI_FLOAT32, .op = TUTTI_SUM, .count = COUNT};
    void *word = NULL;
    (void)argument;
    if (device_begin(0) != 0)
        return 1;
    struct tti_gpu *gpu = device_gpu();
    if (gpu->ops->alloc(gpu, TTI_MEMORY_PINNED, sizeof(uint32_t), &word) != TUTTI_OK)
        return 1;
    __atomic_store_n((uint32_t *)word, 0, __ATOMIC_RELEASE);
    if (gpu->ops->stream_wait(gpu, word, 1, device_stream()) != TUTTI_OK)
        return 1;
    device_patience(0.1);
    const enum tutti_result result =
        device_call(&c, (struct device_shadow){(char *)in, (char *)in, sizeof in},
                    (struct device_shadow){(char *)out, (char *)out, sizeof out}, comm);
    fprintf(stderr, "the call came back while its work was held (result %d)\n", (int)result);
    __atomic_store_n((uint32_t *)word, 1, __ATOMIC_RELEASE); /* now it finds its buffers gone */
    device_patience(60);
    (void)device_settle();
    _exit(CAME_BACK);
}

int main(void)
{
    char said[4096];
    size_t used = 0;
    int ends[2], status = 0;
    fflush(NULL);
    const pid_t child = pipe(ends) == 0 ? fork() : -1;
    if (child < 0)
        return perror("a child"), 1;
    if (child == 0) {
        const struct tti_ranks how = {.ranks = 1, .options = TUTTI_OPTIONS_INIT};
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        _exit(tti_ranks_run(&how, held, NULL) ? 2 : CAME_BACK);
    }
    close(ends[1]);
    for (ssize_t got = 1; got > 0 && used<sizeof said - 1; used += got> 0 ? (size_t)got : 0)
        got = read(ends[0], said + used, sizeof said - 1 - used);
    said[used] = '\0';
    close(ends[0]);
    waitpid(child, &status, 0);
    const bool ended = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE;
    const bool told = strstr(said, "not through at the deadline") &&
                      strstr(said, "still uses the test's buffers");
    printf("a call that is held: %s, %s (status 0x%x)\n%s", ended ? "ended its process" : "FAILED",
           told ? "with the reason" : "FAILED to give the reason", (unsigned)status, said);
    return ended && told ? 0 : 1;
}
