/* Slurm (launch/launchers.h): a task finds everything in its variables; nobody is asked.
 *
 * The ranks meet at the step's first host, on a port out of the job and step numbers. That host is
 * where rank 0 runs, for every distribution but "arbitrary". */
#include "base/config.h"
#include "launch/launchers.h"
#include "launch/variables.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLURM_PORTS = 16 };

bool tti_slurm_present(void)
{
    /* The highest numbers stand for batch scripts and interactive shells. */
    const char *step = tti_config_text("SLURM_STEP_ID");
    return step && tti_config_text("SLURM_PROCID") && strtoul(step, NULL, 10) < 0xfffffff0ul;
}

enum tutti_result tti_slurm_first_host(const char *list, char *host, size_t room)
{
    size_t used = 0;
    const char *at = list;
    for (; *at && *at != ','; at++) {
        if (*at == '[') { /* the first number of the first range stands for the bracket */
            size_t digits = strspn(at + 1, "0123456789");
            const char *end = strchr(at, ']');
            if (!digits || !end || strspn(at + 1, "0123456789,-") != (size_t)(end - at - 1) ||
                used + digits >= room)
                break;
            memcpy(host + used, at + 1, digits);
            used += digits;
            at = end;
        } else if ((!isalnum((unsigned char)*at) && !strchr("-._", *at)) || used + 1 >= room) {
            break;
        } else {
            host[used++] = *at;
        }
    }
    host[used] = '\0';
    if ((*at && *at != ',') || used == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "\"%.200s\" is not a list of hosts", list);
    return TUTTI_OK;
}

enum tutti_result tti_slurm_tasks_on(const char *list, int node, int *tasks)
{
    const char *at = list;
    while (*at && node >= 0) {
        char *end = NULL;
        long count = strtol(at, &end, 10);
        long times = 1;
        if (!isdigit((unsigned char)*at) || count < 0 || count > INT32_MAX)
            break;
        at = end;
        if (strncmp(at, "(x", 2) == 0 && isdigit((unsigned char)at[2])) {
            times = strtol(at + 2, &end, 10);
            if (*end != ')')
                break;
            at = end + 1;
        }
        if (node < times) {
            *tasks = (int)count;
            return TUTTI_OK;
        }
        node -= (int)times;
        if (*at != ',')
            break;
        at++;
    }
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "\"%.200s\" is not a list of tasks per node that is long "
                    "enough",
                    list);
}

static const char *slurm_either(const char *one, const char *other)
{
    return tti_config_text(one) ? one : other;
}

static enum tutti_result slurm_local(struct tti_place *place)
{
    TTI_TRY(tti_variable_local("SLURM_LOCALID", NULL, place));
    int node = -1;
    const char *list =
        tti_config_text(slurm_either("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"));
    TTI_TRY(tti_variable_int("SLURM_NODEID", 0, INT32_MAX, -1, &node));
    int tasks = 0;
    if (list && node >= 0 && tti_slurm_tasks_on(list, node, &tasks) == TUTTI_OK &&
        place->local_rank < tasks && tasks <= place->size)
        place->local_size = tasks;
    return TUTTI_OK;
}

enum tutti_result tti_slurm_find(uint64_t deadline, struct tti_place *place)
{
    (void)deadline;
    bool present = false;
    int nodes = 0;
    char facts[256];
    const char *size_name = slurm_either("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
    TTI_TRY(tti_variable_pair("SLURM_PROCID", size_name, &present, &place->rank, &place->size));
    TTI_TRY(slurm_local(place));
    if (place->size == 1)
        return TUTTI_OK;
    TTI_TRY(tti_variable_int(slurm_either("SLURM_STEP_NUM_NODES", "SLURM_NNODES"), 1, INT32_MAX, 0,
                             &nodes));
    const char *name = slurm_either("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
    const char *list = tti_config_text(name);
    if (nodes == 1) {
        snprintf(place->meeting.host, sizeof place->meeting.host, "127.0.0.1");
    } else if (!list) {
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "SLURM_PROCID is %d of %d but neither SLURM_STEP_NODELIST nor "
                        "SLURM_JOB_NODELIST is set; the ranks do not know where to meet",
                        place->rank, place->size);
    } else if (tti_slurm_first_host(list, place->meeting.host, sizeof place->meeting.host) !=
               TUTTI_OK) {
        return TTI_FAIL(TUTTI_ERR_USAGE, "%s: %s", name, tti_error_text());
    }
    const char *job = tti_config_text("SLURM_JOB_ID");
    const char *step = tti_config_text("SLURM_STEP_ID");
    const char *cluster = tti_config_text("SLURM_CLUSTER_NAME");
    snprintf(facts, sizeof facts, "slurm %s %s.%s %u", cluster ? cluster : "", job ? job : "",
             step ? step : "", (unsigned)getuid());
    place->meeting.port = tti_port_from(facts);
    place->meeting.ports = SLURM_PORTS;
    return tti_variable_secret(facts, place->meeting.secret);
}
