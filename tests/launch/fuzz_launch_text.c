/* Fuzzes the texts that launchers hand over: Slurm's host and task lists, PMI-1 replies, and ids.
 */
#include "launch/id.h"
#include "launch/launchers.h"

#include <stdlib.h>
#include <string.h>

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void fuzz_lists(const char *text)
{
    char host[20];
    int tasks = -1;
    if (tti_slurm_first_host(text, host, sizeof host) == TUTTI_OK)
        check(*host && strlen(host) < sizeof host && !strpbrk(host, "[], "));
    if (tti_slurm_tasks_on(text, 5, &tasks) == TUTTI_OK)
        check(tasks >= 0);
}

static void fuzz_pmi1(const uint8_t *data, size_t bytes)
{
    static const char *const keys[] = {"cmd", "rc", "value", "kvsname"};
    char value[40];
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (tti_pmi1_value((const char *)data, bytes, keys[i], value, sizeof value))
            check(strlen(value) < sizeof value && !strpbrk(value, " \n"));
}

static void fuzz_id(const char *text)
{
    struct tutti_id id = {""};
    struct tutti_id again;
    struct tti_meeting meeting;
    struct tti_meeting second;
    memcpy(id.text, text, strnlen(text, sizeof id.text));
    if (tti_id_parse(&id, &meeting) != TUTTI_OK)
        return;
    check(meeting.port >= 1 && meeting.host[0] && meeting.listen_fd == -1);
    tti_id_format(&meeting, &again);
    check(tti_id_parse(&again, &second) == TUTTI_OK);
    check(memcmp(meeting.secret, second.secret, sizeof second.secret) == 0 &&
          meeting.port == second.port && strcmp(meeting.host, second.host) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    if (!text)
        return 0;
    if (bytes)
        memcpy(text, data, bytes);
    text[bytes] = '\0';
    fuzz_lists(text);
    fuzz_pmi1(data, bytes);
    fuzz_id(text);
    free(text);
    return 0;
}
