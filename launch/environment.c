/* Which launcher started this process (launch/environment.h; users read of it in README.md, "Run").
 *
 * Launchers nest: torchrun under srun, mpirun inside a Slurm allocation. So the innermost one that
 * marks its children wins: tuttirun and torchrun by their markers, then Open MPI, Hydra, a Slurm
 * step, PMIx, and last a bare RANK and WORLD_SIZE set by hand. Variables that contradict the winner
 * and cannot come from an outer launcher are refused by name. */
#include "launch/environment.h"

#include "base/config.h"
#include "base/log.h"
#include "launch/boot_socket.h"
#include "launch/launchers.h"
#include "launch/variables.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TORCHRUN_PORTS = 16 };

static bool environment_marked(void)
{
    return tti_config_text("TUTTI_RUN_ID") || tti_config_text("TORCHELASTIC_RUN_ID");
}

/* The listening socket that tuttirun left for rank 0. Once: a second communicator listens anew. */
static int environment_listen_fd(uint16_t wanted_port)
{
    static atomic_bool taken;
    const char *text = tti_config_text("TUTTI_LISTEN_FD");
    uint16_t port = 0;
    int fd = -1;
    if (!text || tti_variable_int("TUTTI_LISTEN_FD", 0, 1 << 20, -1, &fd) != TUTTI_OK ||
        tti_socket_listening(fd, &port) != TUTTI_OK || port != wanted_port ||
        atomic_exchange(&taken, true))
        return -1;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

/* tuttirun leaves MASTER_PORT to the program on one host, and says in
 * TUTTI_MEETING=MASTER_PORT:PORT where communicators meet. Who has been given another MASTER_PORT
 * since meets there. */
static enum tutti_result environment_meeting(int *port)
{
    const char *text = tti_config_text("TUTTI_MEETING");
    int given = 0, meeting = 0, end = 0;
    if (!text)
        return TUTTI_OK;
    if (sscanf(text, "%5d:%5d%n", &given, &meeting, &end) != 2 || text[end] || meeting < 1 ||
        meeting > 65535)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "TUTTI_MEETING is \"%.60s\"; expected two ports, as tuttirun sets it "
                        "(unset it if you did)",
                        text);
    if (given == *port)
        *port = meeting;
    return TUTTI_OK;
}

/* RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: tuttirun, torchrun, or a careful script. */
static enum tutti_result environment_torchrun(uint64_t deadline, struct tti_place *place)
{
    (void)deadline;
    bool present = false;
    bool torchrun = tti_config_text("TORCHELASTIC_RUN_ID") && !tti_config_text("TUTTI_RUN_ID");
    int port = 0;
    char facts[400];
    TTI_TRY(tti_variable_pair("RANK", "WORLD_SIZE", &present, &place->rank, &place->size));
    if (!present)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "%s is set, so this process was started by %s, but RANK and WORLD_SIZE "
                        "are not",
                        torchrun ? "TORCHELASTIC_RUN_ID" : "TUTTI_RUN_ID",
                        torchrun ? "torchrun" : "tuttirun");
    TTI_TRY(tti_variable_local("LOCAL_RANK", "LOCAL_WORLD_SIZE", place));
    snprintf(place->launcher, sizeof place->launcher, "%s", torchrun ? "torchrun" : "tuttirun");
    if (place->size == 1)
        return TUTTI_OK;
    const char *host = tti_config_text("MASTER_ADDR");
    if (!host || !tti_config_text("MASTER_PORT"))
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "RANK is %d and WORLD_SIZE is %d but %s is not set; the ranks do not know "
                        "where to meet",
                        place->rank, place->size, host ? "MASTER_PORT" : "MASTER_ADDR");
    if (strlen(host) >= sizeof place->meeting.host)
        return TTI_FAIL(TUTTI_ERR_USAGE, "MASTER_ADDR is \"%.60s...\", which is too long", host);
    TTI_TRY(tti_variable_int("MASTER_PORT", 1, 65535, 0, &port));
    TTI_TRY(environment_meeting(&port));
    /* torchrun's agent may hold MASTER_PORT for its own store. */
    place->meeting.port = (uint16_t)(torchrun && port < 65535 ? port + 1 : port);
    place->meeting.ports = torchrun ? TORCHRUN_PORTS : 1;
    if (place->meeting.port + place->meeting.ports > 65536)
        place->meeting.ports = (uint16_t)(65536 - place->meeting.port);
    snprintf(place->meeting.host, sizeof place->meeting.host, "%s", host);
    if (place->rank == 0)
        place->meeting.listen_fd = environment_listen_fd(place->meeting.port);
    const char *run = tti_config_text("TORCHELASTIC_RUN_ID");
    snprintf(facts, sizeof facts, "torchrun %s %d %s", host, port, run ? run : "");
    return tti_variable_secret(facts, place->meeting.secret);
}

static enum tutti_result environment_none(uint64_t deadline, struct tti_place *place)
{
    (void)deadline;
    place->size = 1;
    place->local_rank = 0;
    place->local_size = 1;
    return TUTTI_OK;
}

enum tutti_result tti_place_make_id(struct tti_place *place, struct tutti_id *id)
{
    bool one_host = place->local_size == place->size;
    TTI_TRY(tti_id_make(one_host ? "127.0.0.1" : NULL, false, id));
    return tti_meeting_from_id(id, 0, &place->meeting);
}

enum tutti_result tti_place_take_id(struct tti_place *place, const char *text)
{
    struct tutti_id id;
    snprintf(id.text, sizeof id.text, "%s", text);
    return tti_meeting_from_id(&id, place->rank, &place->meeting);
}

struct launcher {
    const char *name;
    bool (*present)(void);
    enum tutti_result (*find)(uint64_t deadline, struct tti_place *place);
    const char *same[4][2]; /* variables that must agree where both are set */
};

static bool environment_by_hand(void)
{
    return tti_config_text("RANK") || tti_config_text("WORLD_SIZE");
}

/* RANK and the rest given whole: they say where to meet, whatever started the process. */
static bool environment_complete(void)
{
    return tti_config_text("RANK") && tti_config_text("WORLD_SIZE") &&
           tti_config_text("MASTER_ADDR") && tti_config_text("MASTER_PORT");
}

static bool environment_always(void)
{
    return true;
}

#define BY_HAND(rank, size) \
    {"RANK", rank},         \
    {                       \
        "WORLD_SIZE", size  \
    }

/* In the order in which they win. */
static const struct launcher launchers[] = {
    {"tuttirun", environment_marked, environment_torchrun, {{0}}},
    {"openmpi",
     tti_openmpi_present,
     tti_openmpi_find,
     {BY_HAND("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
      {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"},
      {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}}},
    {"mpich", tti_hydra_present, tti_hydra_find, {BY_HAND("PMI_RANK", "PMI_SIZE")}},
    {"slurm",
     tti_slurm_present,
     tti_slurm_find,
     {BY_HAND("SLURM_PROCID", "SLURM_NTASKS"),
      {"SLURM_PROCID", "PMI_RANK"},
      {"SLURM_PROCID", "PMIX_RANK"}}},
    {"pmix", tti_pmix_present, tti_pmix_find, {{"RANK", "PMIX_RANK"}}},
    {"tuttirun", environment_by_hand, environment_torchrun, {{0}}},
    {"none", environment_always, environment_none, {{0}}},
};

static const struct launcher *environment_launcher(void)
{
    const struct launcher *launcher = launchers;
    while (!launcher->present())
        launcher++;
    return launcher;
}

bool tti_place_is_launched(void)
{
    return environment_launcher()->present != environment_always;
}

enum tutti_result tti_place_find(uint64_t deadline, struct tti_place *place)
{
    const struct launcher *launcher = environment_launcher();
    struct tti_place found = {.local_rank = -1, .local_size = -1};
    found.meeting.ports = 1;
    found.meeting.listen_fd = -1;
    snprintf(found.launcher, sizeof found.launcher, "%s", launcher->name);
    for (int i = 0; i < 4 && launcher->same[i][0]; i++)
        TTI_TRY(tti_variable_agree(launcher->same[i][0], launcher->same[i][1]));
    if (environment_complete())
        TTI_TRY(environment_torchrun(deadline, &found));
    else
        TTI_TRY(launcher->find(deadline, &found));
    TTI_LOG(TTI_LOG_INFO, "started by %s: rank %d of %d", found.launcher, found.rank, found.size);
    *place = found;
    return TUTTI_OK;
}
