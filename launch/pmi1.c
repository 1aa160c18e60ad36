/* MPICH's launcher, Hydra (launch/launchers.h): rank 0's id travels through its key-value space, in
 * the text protocol of PMI-1 over the socket PMI_FD.
 *
 * Hydra takes a process that said "init" and closes the socket without "finalize" for a failed one,
 * and after "finalize" the socket is of no more use: so the farewell waits until the process exits,
 * and an MPI_Init in between finds the socket as it was. A program that has called MPI_Init first
 * may still come here, as long as MPI is not using the socket at that moment. */
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "launch/boot_socket.h"
#include "launch/launchers.h"
#include "launch/variables.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PMI1_LINE_BYTES = 2048 };

static pthread_mutex_t pmi1_lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static int pmi1_fd = -1;                                      /* said init; -1 until then */
static struct stat pmi1_identity; /* of pmi1_fd, in case its number is reused */
static unsigned pmi1_round;       /* communicators made, for the key */

bool tti_hydra_present(void)
{
    if (!tti_config_text("PMI_RANK") && !tti_config_text("PMI_SIZE"))
        return false;
    /* Slurm's own PMI: the step's variables say it all. */
    bool slurms = tti_config_text("PMI_JOBID") && !tti_config_text("HYDI_CONTROL_FD");
    return !(slurms && tti_slurm_present());
}

bool tti_pmi1_value(const char *line, size_t bytes, const char *key, char *value, size_t room)
{
    size_t key_bytes = strlen(key);
    for (size_t at = 0; at < bytes;) {
        size_t end = at;
        while (end < bytes && line[end] != ' ' && line[end] != '\n')
            end++;
        if (end - at > key_bytes && memcmp(line + at, key, key_bytes) == 0 &&
            line[at + key_bytes] == '=') {
            size_t length = end - at - key_bytes - 1;
            if (length >= room || memchr(line + at, '\0', end - at))
                return false;
            memcpy(value, line + at + key_bytes + 1, length);
            value[length] = '\0';
            return true;
        }
        at = end + 1;
    }
    return false;
}

/* One line out, one line back; the reply must be `reply` with rc=0. */
static enum tutti_result pmi1_call(int fd, const char *request, const char *reply,
                                   uint64_t deadline, char *line, size_t *bytes)
{
    char word[64] = "";
    char code[16] = "0";
    size_t used = 0;
    if (tti_socket_send(fd, request, strlen(request), deadline) != 0)
        return TTI_FAIL_ERRNO("asking the process manager on PMI_FD %d", fd);
    do {
        if (used == PMI1_LINE_BYTES)
            return TTI_FAIL(TUTTI_ERR_PROTOCOL, "a reply on PMI_FD %d does not end", fd);
        if (tti_socket_receive(fd, line + used, 1, deadline) != 0) {
            if (errno == ETIMEDOUT)
                return TTI_FAIL(TUTTI_ERR_TIMEOUT,
                                "no \"%s\" from the process manager on PMI_FD %d in time; have all "
                                "ranks come?",
                                reply, fd);
            return TTI_FAIL_ERRNO("reading from the process manager on PMI_FD %d", fd);
        }
    } while (line[used++] != '\n');
    *bytes = used;
    if (!tti_pmi1_value(line, used, "cmd", word, sizeof word) || strcmp(word, reply) != 0)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL,
                        "the process manager on PMI_FD %d answered \"%s\" instead of \"%s\"", fd,
                        word, reply);
    if (tti_pmi1_value(line, used, "rc", code, sizeof code) && strcmp(code, "0") != 0)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "the process manager refused \"%s\" (rc %s)", reply,
                        code);
    return TUTTI_OK;
}

/* Whether pmi1_fd is still the socket that we said init on: MPI_Finalize closes it. */
static bool pmi1_alive(void)
{
    struct stat now;
    return pmi1_fd >= 0 && fstat(pmi1_fd, &now) == 0 && now.st_ino == pmi1_identity.st_ino &&
           now.st_dev == pmi1_identity.st_dev;
}

static void pmi1_farewell(void)
{
    char line[PMI1_LINE_BYTES];
    size_t bytes = 0;
    if (pmi1_alive())
        (void)pmi1_call(pmi1_fd, "cmd=finalize\n", "finalize_ack", tti_deadline_in(2), line,
                        &bytes);
}

static enum tutti_result pmi1_begin(uint64_t deadline, int *fd)
{
    char line[PMI1_LINE_BYTES];
    size_t bytes = 0;
    if (pmi1_alive()) {
        *fd = pmi1_fd;
        return TUTTI_OK;
    }
    if (pmi1_fd >= 0)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "PMI_FD %d was closed, by MPI_Finalize most likely; make communicators "
                        "before that",
                        pmi1_fd);
    if (!tti_config_text("PMI_FD"))
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "PMI_RANK is set but PMI_FD is not; Tutti speaks to MPICH's process "
                        "manager over PMI_FD only");
    TTI_TRY(tti_variable_int("PMI_FD", 0, 1 << 20, -1, fd));
    TTI_TRY(pmi1_call(*fd, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init",
                      deadline, line, &bytes));
    if (fstat(*fd, &pmi1_identity) != 0)
        return TTI_FAIL_ERRNO("fstat of PMI_FD %d", *fd);
    pmi1_fd = *fd;
    (void)atexit(pmi1_farewell);
    return TUTTI_OK;
}

/* Rank 0 puts its id, all wait, the others get it. */
static enum tutti_result pmi1_exchange(uint64_t deadline, struct tti_place *place)
{
    int fd = -1;
    char line[PMI1_LINE_BYTES];
    char request[PMI1_LINE_BYTES];
    char space[300];
    char value[300] = "";
    size_t bytes = 0;
    struct tutti_id id;
    TTI_TRY(pmi1_begin(deadline, &fd));
    TTI_TRY(pmi1_call(fd, "cmd=get_maxes\n", "maxes", deadline, line, &bytes));
    if (!tti_pmi1_value(line, bytes, "vallen_max", value, sizeof value) ||
        atoi(value) < (int)sizeof id.text)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "the process manager's values hold too few bytes for an address "
                        "(vallen_max \"%s\")",
                        value);
    TTI_TRY(pmi1_call(fd, "cmd=get_my_kvsname\n", "my_kvsname", deadline, line, &bytes));
    if (!tti_pmi1_value(line, bytes, "kvsname", space, sizeof space))
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "the process manager names no key-value space");
    unsigned round = pmi1_round++;
    if (place->rank == 0) {
        TTI_TRY(tti_place_make_id(place, &id));
        snprintf(request, sizeof request, "cmd=put kvsname=%s key=tutti-%u value=%s\n", space,
                 round, id.text);
        TTI_TRY(pmi1_call(fd, request, "put_result", deadline, line, &bytes));
    }
    TTI_TRY(pmi1_call(fd, "cmd=barrier_in\n", "barrier_out", deadline, line, &bytes));
    if (place->rank == 0)
        return TUTTI_OK;
    snprintf(request, sizeof request, "cmd=get kvsname=%s key=tutti-%u\n", space, round);
    TTI_TRY(pmi1_call(fd, request, "get_result", deadline, line, &bytes));
    if (!tti_pmi1_value(line, bytes, "value", value, sizeof value))
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "the process manager has no address of rank 0");
    return tti_place_take_id(place, value);
}

enum tutti_result tti_hydra_find(uint64_t deadline, struct tti_place *place)
{
    bool present = false;
    TTI_TRY(tti_variable_pair("PMI_RANK", "PMI_SIZE", &present, &place->rank, &place->size));
    TTI_TRY(tti_variable_local("MPI_LOCALRANKID", "MPI_LOCALNRANKS", place));
    if (place->size == 1)
        return TUTTI_OK;
    pthread_mutex_lock(&pmi1_lock);
    enum tutti_result result = pmi1_exchange(deadline, place);
    pthread_mutex_unlock(&pmi1_lock);
    return result;
}
