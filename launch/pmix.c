/* Open MPI's mpirun and other launchers with a PMIx server (launch/launchers.h): rank 0 publishes
 * its id under a key, the others ask for it until it is there.
 *
 * libpmix is loaded when it is needed and stays: PMIx counts its users, so an MPI_Init before or
 * after us is served by the same connection, and our share is given back when the process exits (a
 * process that exits without would count as failed). The asking is asynchronous, because a PMIx_Get
 * has no deadline that all servers respect; an answer that comes too late finds its own memory.
 * Without libpmix, ranks on one host still find each other: at a port out of the job's name. */
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/launchers.h"
#include "launch/pmix_abi.h"
#include "launch/variables.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PMIX_PORTS = 16 };

static pthread_mutex_t pmix_lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static struct tti_pmix pmix;
static struct tti_pmix_proc pmix_self;
static bool pmix_ready;
static unsigned pmix_round; /* communicators made, for the key */

/* One question: shared by the one who asks and the answer, freed by the last. */
struct pmix_question {
    atomic_int refs;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool done;
    int status;
    char text[sizeof(struct tutti_id)];
};

static void pmix_farewell(void)
{
    if (pmix_ready)
        (void)pmix.finalize(NULL, 0);
}

static enum tutti_result pmix_load(void)
{
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {
        {"PMIx_Init", offsetof(struct tti_pmix, init)},
        {"PMIx_Finalize", offsetof(struct tti_pmix, finalize)},
        {"PMIx_Put", offsetof(struct tti_pmix, put)},
        {"PMIx_Commit", offsetof(struct tti_pmix, commit)},
        {"PMIx_Get", offsetof(struct tti_pmix, get)},
        {"PMIx_Get_nb", offsetof(struct tti_pmix, get_nb)},
        {"PMIx_Error_string", offsetof(struct tti_pmix, error)},
    };
    const char *path = tti_config_text("TUTTI_LIBPMIX");
    void *library = dlopen(path ? path : "libpmix.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "cannot load libpmix.so.2: %s", dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol)
            return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "libpmix.so.2 has no %s", symbols[i].name);
        memcpy((char *)&pmix + symbols[i].offset, &symbol, sizeof symbol);
    }
    return TUTTI_OK;
}

static enum tutti_result pmix_begin(void)
{
    if (pmix_ready)
        return TUTTI_OK;
    TTI_TRY(pmix_load());
    int status = pmix.init(&pmix_self, NULL, 0);
    if (status != TTI_PMIX_SUCCESS)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "PMIx_Init: %s", pmix.error(status));
    pmix_ready = true;
    (void)atexit(pmix_farewell);
    return TUTTI_OK;
}

/* A fact about the job that the server gave at the start. */
static enum tutti_result pmix_number(const char *key, bool of_job, int *number)
{
    struct tti_pmix_value *value = NULL;
    struct tti_pmix_proc proc = pmix_self;
    if (of_job)
        proc.rank = TTI_PMIX_RANK_WILDCARD;
    int status = pmix.get(&proc, key, NULL, 0, &value);
    if (status != TTI_PMIX_SUCCESS || !value)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "PMIx_Get of %s: %s", key, pmix.error(status));
    bool known = value->type == TTI_PMIX_UINT32 || value->type == TTI_PMIX_UINT16;
    uint32_t found = value->type == TTI_PMIX_UINT32 ? value->data.uint32 : value->data.uint16;
    free(value);
    if (!known || found > INT32_MAX)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "PMIx gives no number for %s", key);
    *number = (int)found;
    return TUTTI_OK;
}

static void pmix_question_release(struct pmix_question *question)
{
    if (atomic_fetch_sub(&question->refs, 1) != 1)
        return;
    pthread_cond_destroy(&question->answered);
    pthread_mutex_destroy(&question->lock);
    free(question);
}

/* On a thread of libpmix. */
static void pmix_answer(int status, struct tti_pmix_value *value, void *context)
{
    struct pmix_question *question = context;
    pthread_mutex_lock(&question->lock);
    question->status = status;
    if (status == TTI_PMIX_SUCCESS && value && value->type == TTI_PMIX_STRING && value->data.string)
        snprintf(question->text, sizeof question->text, "%s", value->data.string);
    question->done = true;
    pthread_cond_signal(&question->answered);
    pthread_mutex_unlock(&question->lock);
    pmix_question_release(question);
}

/* Ask once; *answered is false when the key is not there yet. */
static enum tutti_result pmix_ask(const char *key, uint64_t deadline, char *text, size_t room,
                                  bool *answered)
{
    struct tti_pmix_proc root = pmix_self;
    struct pmix_question *question = tti_calloc(1, sizeof *question);
    if (!question)
        return TUTTI_ERR_MEMORY;
    root.rank = 0;
    atomic_init(&question->refs, 2);
    pthread_mutex_init(&question->lock, NULL);
    tti_cond_init(&question->answered);
    int status = pmix.get_nb(&root, key, NULL, 0, pmix_answer, question);
    if (status != TTI_PMIX_SUCCESS) /* nobody will answer */
        atomic_store(&question->refs, 1);
    pthread_mutex_lock(&question->lock);
    int waited = 0;
    while (status == TTI_PMIX_SUCCESS && !question->done && waited == 0)
        waited = tti_cond_wait(&question->answered, &question->lock, deadline);
    *answered = question->done && question->status == TTI_PMIX_SUCCESS && question->text[0];
    if (*answered)
        snprintf(text, room, "%s", question->text);
    pthread_mutex_unlock(&question->lock);
    pmix_question_release(question);
    return TUTTI_OK;
}

static enum tutti_result pmix_publish(const char *key, struct tti_place *place)
{
    struct tutti_id id;
    TTI_TRY(tti_place_make_id(place, &id));
    struct tti_pmix_value value = {.type = TTI_PMIX_STRING, .data = {.string = id.text}};
    int status = pmix.put(TTI_PMIX_GLOBAL, key, &value);
    if (status == TTI_PMIX_SUCCESS)
        status = pmix.commit();
    if (status != TTI_PMIX_SUCCESS)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "publishing rank 0's address through PMIx: %s",
                        pmix.error(status));
    return TUTTI_OK;
}

/* Rank 0 publishes; the others ask, again and again while the answer is "not there". */
static enum tutti_result pmix_exchange(uint64_t deadline, struct tti_place *place)
{
    char key[32];
    char text[sizeof(struct tutti_id)];
    bool answered = false;
    int pause_ms = 5;
    snprintf(key, sizeof key, "tutti.id.%u", pmix_round++);
    if (place->rank == 0)
        return pmix_publish(key, place);
    for (;;) {
        TTI_TRY(pmix_ask(key, deadline, text, sizeof text, &answered));
        if (answered)
            return tti_place_take_id(place, text);
        if (tti_deadline_passed(deadline))
            return TTI_FAIL(TUTTI_ERR_TIMEOUT,
                            "rank 0 of %d has not given its address to PMIx in time; does it run?",
                            place->size);
        (void)poll(NULL, 0, tti_deadline_ms(deadline, pause_ms));
        pause_ms = pause_ms >= 100 ? 200 : pause_ms * 2;
    }
}

/* ---- Open MPI ------------------------------------------------------------------------------- */

bool tti_openmpi_present(void)
{
    return tti_config_text("OMPI_COMM_WORLD_RANK") || tti_config_text("OMPI_COMM_WORLD_SIZE");
}

/* No libpmix: a port and a key out of the job's name, which is good for one host. */
static enum tutti_result pmix_one_host(struct tti_place *place)
{
    char facts[400];
    const char *name = tti_config_text("PMIX_NAMESPACE");
    if (!name)
        name = tti_config_text("OMPI_MCA_ess_base_jobid");
    if (place->local_size != place->size || !name) {
        struct tti_error reason;
        tti_error_save(&reason, TUTTI_ERR_UNSUPPORTED);
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "%d of %d ranks are on this host, and the ranks can only meet through "
                        "PMIx: %s; install libpmix2, or name it in TUTTI_LIBPMIX",
                        place->local_size, place->size, reason.text);
    }
    TTI_LOG(TTI_LOG_INFO, "no PMIx (%s); meeting on loopback", tti_error_text());
    snprintf(facts, sizeof facts, "openmpi %s %u", name, (unsigned)getuid());
    snprintf(place->meeting.host, sizeof place->meeting.host, "127.0.0.1");
    place->meeting.port = tti_port_from(facts);
    place->meeting.ports = PMIX_PORTS;
    return tti_variable_secret(facts, place->meeting.secret);
}

enum tutti_result tti_openmpi_find(uint64_t deadline, struct tti_place *place)
{
    bool present = false;
    TTI_TRY(tti_variable_pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &present,
                              &place->rank, &place->size));
    TTI_TRY(tti_variable_local("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", place));
    if (place->size == 1)
        return TUTTI_OK;
    pthread_mutex_lock(&pmix_lock);
    enum tutti_result result = pmix_begin();
    bool has_pmix = result == TUTTI_OK;
    if (has_pmix)
        result = pmix_exchange(deadline, place);
    pthread_mutex_unlock(&pmix_lock);
    return has_pmix ? result : pmix_one_host(place);
}

/* ---- Any PMIx server ------------------------------------------------------------------------ */

bool tti_pmix_present(void)
{
    return tti_config_text("PMIX_RANK") || tti_config_text("PMIX_NAMESPACE");
}

static enum tutti_result pmix_place(struct tti_place *place)
{
    int number = -1;
    TTI_TRY(pmix_begin());
    TTI_TRY(pmix_number(TTI_PMIX_JOB_SIZE, true, &place->size));
    if (place->rank >= place->size)
        return TTI_FAIL(TUTTI_ERR_USAGE, "PMIX_RANK is %d but PMIx says that the job has %d ranks",
                        place->rank, place->size);
    if (pmix_number(TTI_PMIX_LOCAL_RANK, false, &number) == TUTTI_OK)
        place->local_rank = number;
    if (pmix_number(TTI_PMIX_LOCAL_SIZE, true, &number) == TUTTI_OK)
        place->local_size = number;
    return TUTTI_OK;
}

enum tutti_result tti_pmix_find(uint64_t deadline, struct tti_place *place)
{
    const char *rank = tti_config_text("PMIX_RANK");
    if (!rank || !tti_config_text("PMIX_NAMESPACE"))
        return TTI_FAIL(TUTTI_ERR_USAGE, "%s is set but %s is not; PMIx sets both",
                        rank ? "PMIX_RANK" : "PMIX_NAMESPACE",
                        rank ? "PMIX_NAMESPACE" : "PMIX_RANK");
    TTI_TRY(tti_variable_int("PMIX_RANK", 0, INT32_MAX, 0, &place->rank));
    pthread_mutex_lock(&pmix_lock);
    enum tutti_result result = pmix_place(place);
    if (result == TUTTI_OK && place->size > 1)
        result = pmix_exchange(deadline, place);
    pthread_mutex_unlock(&pmix_lock);
    return result;
}
