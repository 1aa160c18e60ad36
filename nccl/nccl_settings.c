/* Settings of the NCCL door: log lines, configuration structs, and those NCCL_* variables that are
 * not simply another name for ours (nccl_variables.c). */
#include "nccl/nccl_comm.h"

#include "base/config.h"
#include "base/quiet.h"
#include "launch/id.h"
#include "launch/variables.h"
#include "transport/registry.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* NCCL waits for ever, and programs have deadlines of their own: of hours, where a rank prepares
 * data meanwhile. Ours is one that no sound program meets. */
static const double TIMEOUT_S = 7 * 24 * 3600;

/* ---- log lines as NCCL writes them ---- */

static int log_fd = STDOUT_FILENO;
static int log_version; /* NCCL_DEBUG asks for the version, at least */
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;
static pthread_once_t version_once = PTHREAD_ONCE_INIT;

static void log_line(const char *level, const char *text)
{
    char host[64] = "?";
    char line[1600];
    gethostname(host, sizeof host - 1);
    int bytes = snprintf(line, sizeof line, "%s:%d:%ld NCCL %s %s\n", host, (int)getpid(),
                         (long)syscall(SYS_gettid), level, text);
    if (bytes > (int)sizeof line - 1)
        bytes = (int)sizeof line - 1;
    ssize_t ignored = tti_quiet_write(log_fd, line, (size_t)bytes);
    (void)ignored;
}

static void log_sink(enum tti_log_level level, const char *text)
{
    log_line(level <= TTI_LOG_WARN ? "WARN" : level == TTI_LOG_INFO ? "INFO" : "TRACE", text);
}

void tti_nccl_log_line(const char *text)
{
    log_line("INFO", text);
}

/* NCCL_DEBUG_FILE, where %h is the host's name and %p the process. */
static void log_open(const char *pattern)
{
    char path[1024], host[64] = "?";
    size_t used = 0;
    gethostname(host, sizeof host - 1);
    for (; *pattern && used < sizeof path - 1; pattern++) {
        if (pattern[0] == '%' && (pattern[1] == 'h' || pattern[1] == 'p')) {
            used += (size_t)(pattern[1] == 'h'
                                 ? snprintf(path + used, sizeof path - used, "%s", host)
                                 : snprintf(path + used, sizeof path - used, "%d", (int)getpid()));
            pattern++;
            if (used >= sizeof path)
                return;
        } else {
            path[used++] = *pattern;
        }
    }
    path[used] = '\0';
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd >= 0)
        log_fd = fd;
}

static void log_begin(void)
{
    static const struct {
        const char *name;
        enum tti_log_level level;
    } levels[] = {{"WARN", TTI_LOG_WARN},
                  {"INFO", TTI_LOG_INFO},
                  {"ABORT", TTI_LOG_INFO},
                  {"TRACE", TTI_LOG_TRACE}};
    const char *debug = tti_config_text("NCCL_DEBUG");
    const char *file = tti_config_text("NCCL_DEBUG_FILE");
    log_version = 0;
    if (!debug)
        return;
    log_version = strcasecmp(debug, "VERSION") == 0;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (strcasecmp(debug, levels[i].name) == 0) {
            log_version = 1;
            if (!tti_config_text("TUTTI_LOG"))
                tti_log_divert(levels[i].level, log_sink);
        }
    if (file && log_version && log_fd == STDOUT_FILENO)
        log_open(file);
}

static void version_print(void)
{
    const int tutti = tutti_version();
    char line[128];
    int bytes = snprintf(line, sizeof line, "NCCL version %d.%d.%d (Tutti %d.%d.%d)\n", NCCL_MAJOR,
                         NCCL_MINOR, NCCL_PATCH, tutti / 10000, tutti / 100 % 100, tutti % 100);
    ssize_t ignored = tti_quiet_write(log_fd, line, (size_t)bytes);
    (void)ignored;
}

void tti_nccl_print_version(void)
{
    if (log_version)
        pthread_once(&version_once, version_print);
}

/* ---- NCCL_* variables ---- */

static void settings_read(void)
{
    tti_nccl_variables_read(log_begin);
    tti_nccl_forks_begin();
}

void tti_nccl_settings(void)
{
    pthread_once(&settings_once, settings_read);
}

bool tti_nccl_id_by_variable(struct tutti_id *id, enum tutti_result *result)
{
    const char *text = tti_config_text("NCCL_COMM_ID");
    struct tti_meeting meeting = {.ports = 1, .listen_fd = -1};
    long port = 0;
    if (!text)
        return false;
    const char *colon = strrchr(text, ':');
    size_t host = colon ? (size_t)(colon - text) : 0;
    if (!host || host >= sizeof meeting.host) {
        *result = TTI_FAIL(TUTTI_ERR_ARGUMENT, "NCCL_COMM_ID is \"%s\"; expected HOST:PORT", text);
        return true;
    }
    if (text[0] == '[' && text[host - 1] == ']') /* IPv6 */
        memcpy(meeting.host, text + 1, host - 2);
    else
        memcpy(meeting.host, text, host);
    *result = tti_parse_int("the port in NCCL_COMM_ID", colon + 1, 1, 65535, &port);
    if (*result == TUTTI_OK)
        *result = tti_variable_secret(text, meeting.secret);
    if (*result == TUTTI_OK) {
        meeting.port = (uint16_t)port;
        tti_id_format(&meeting, id);
    }
    return true;
}

/* ---- options and configurations ---- */

/* The plugin that a name is, as it stands or as the end of libnccl-net-NAME.so. */
static bool plugin_load(const char *name, char *path, size_t room)
{
    const struct tutti_transport_ops *ops = NULL;
    snprintf(path, room, "%s", name);
    if (tti_transport_load(path, &ops) == TUTTI_OK)
        return true;
    if (strchr(name, '/') || strstr(name, ".so"))
        return false;
    snprintf(path, room, "libnccl-net-%s.so", name);
    return tti_transport_load(path, &ops) == TUTTI_OK;
}

/* NCCL_NET_PLUGIN: names, of which the first that is there is taken, or "none"; unset, it is
 * libnccl-net.so, if the machine has one. Images name plugins that the machine may not have; NCCL
 * does without then, and so do programs that it serves. */
static const char *options_plugin(char *path, size_t room)
{
    static atomic_bool told;
    const char *names = tti_config_text("NCCL_NET_PLUGIN");
    if ((names && strcmp(names, "none") == 0) || tti_config_text("TUTTI_PLUGINS"))
        return NULL;
    if (!names && plugin_load("libnccl-net.so", path, room))
        return path;
    for (const char *at = names; at && *(at += strspn(at, ","));) {
        char name[512];
        const size_t bytes = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)bytes, at);
        if (plugin_load(name, path, room))
            return path;
        at += bytes;
    }
    if (atomic_exchange(&told, true))
        return NULL;
    if (names)
        TTI_LOG(TTI_LOG_WARN, "NCCL_NET_PLUGIN=%s: %s; going on without", names, tti_error_text());
    else
        TTI_LOG(TTI_LOG_INFO, "no network plugin: %s", tti_error_text());
    return NULL;
}

void tti_nccl_options(const char *network, struct tutti_options *options)
{
    static _Thread_local char plugin[1024], transports[64]; /* copied when it is made */
    *options = (struct tutti_options)TUTTI_OPTIONS_INIT;
    if (!tti_config_text("TUTTI_TIMEOUT"))
        options->timeout_s = TIMEOUT_S;
    if (!tti_config_text("TUTTI_INIT_TIMEOUT"))
        options->init_timeout_s = TIMEOUT_S;
    options->plugins = options_plugin(plugin, sizeof plugin);
    if (!network[0] || tti_config_text("TUTTI_TRANSPORT"))
        return;
    tti_nccl_transports(network, true, transports, sizeof transports);
    if (transports[0])
        options->transports = transports;
}

/* Fields that came after the one before them had left room at the end of the struct: what stands
 * there in older structs is padding. */
static void config_drop_padding(ncclConfig_t *config)
{
    if (config->version < NCCL_VERSION(2, 17, 0))
        config->cgaClusterSize = NCCL_CONFIG_UNDEF_INT;
    if (config->version < NCCL_VERSION(2, 25, 0))
        config->trafficClass = NCCL_CONFIG_UNDEF_INT;
    if (config->version < NCCL_VERSION(2, 30, 0))
        config->maxP2pPeers = config->graphStreamOrdering = NCCL_CONFIG_UNDEF_INT;
}

static ncclResult_t config_range(const char *name, int value, int least, int most)
{
    if (value == NCCL_CONFIG_UNDEF_INT || (value >= least && value <= most))
        return ncclSuccess;
    return tti_nccl_fail(ncclInvalidArgument,
                         "ncclConfig_t.%s is %d; expected %d to %d, or NCCL_CONFIG_UNDEF_INT", name,
                         value, least, most);
}

/* What has no effect, once a field: the program is told what has. */
static void config_answer(int field, const char *name, int value, const char *instead)
{
    static _Atomic uint32_t answered;
    const uint32_t bit = 1u << field;
    if (instead && value != NCCL_CONFIG_UNDEF_INT && !(atomic_fetch_or(&answered, bit) & bit))
        TTI_LOG(TTI_LOG_WARN, "ncclConfig_t.%s = %d has no effect on Tutti; instead: %s", name,
                value, instead);
}

static ncclResult_t config_values(const ncclConfig_t *config)
{
    const struct {
        const char *name;
        int value, least, most;
        const char *instead; /* NULL: it has its effect, or needs none */
    } fields[] = {
        {"blocking", config->blocking, 0, 1, NULL},
        {"cgaClusterSize", config->cgaClusterSize, 0, 8, "nothing: kernels are not in clusters"},
        {"minCTAs", config->minCTAs, 1, INT_MAX, "TUTTI_LANES"},
        {"maxCTAs", config->maxCTAs, 1, INT_MAX, "TUTTI_LANES"},
        {"splitShare", config->splitShare, 0, 1, NULL},
        {"trafficClass", config->trafficClass, 0, INT_MAX, "TUTTI_RDMA_TRAFFIC_CLASS"},
        {"collnetEnable", config->collnetEnable, 0, 1, "nothing: no network reduces"},
        {"CTAPolicy", config->CTAPolicy, 0, 3, "nothing: kernels choose their own blocks"},
        {"shrinkShare", config->shrinkShare, 0, 1, NULL},
        {"nvlsCTAs", config->nvlsCTAs, 1, INT_MAX, "TUTTI_NVLS, from which size on"},
        {"nChannelsPerNetPeer", config->nChannelsPerNetPeer, 1, INT_MAX, "TUTTI_LANES"},
        {"nvlinkCentricSched", config->nvlinkCentricSched, 0, 1, "TUTTI_ALGO"},
        {"graphUsageMode", config->graphUsageMode, 0, 2, NULL},
        {"numRmaCtx", config->numRmaCtx, 0, INT_MAX, NULL},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        ncclResult_t result =
            config_range(fields[i].name, fields[i].value, fields[i].least, fields[i].most);
        if (result != ncclSuccess)
            return result;
        config_answer((int)i, fields[i].name, fields[i].value, fields[i].instead);
    }
    if (config->minCTAs != NCCL_CONFIG_UNDEF_INT && config->maxCTAs != NCCL_CONFIG_UNDEF_INT &&
        config->minCTAs > config->maxCTAs)
        return tti_nccl_fail(ncclInvalidArgument,
                             "ncclConfig_t.minCTAs is %d, more than maxCTAs %d", config->minCTAs,
                             config->maxCTAs);
    return ncclSuccess;
}

/* NCCL_COMM_BLOCKING goes before what the program says, as with NCCL. */
static void config_variable(ncclConfig_t *config)
{
    const char *blocking = tti_config_text("NCCL_COMM_BLOCKING");
    if (blocking && (strcmp(blocking, "0") == 0 || strcmp(blocking, "1") == 0))
        config->blocking = *blocking - '0';
}

ncclResult_t tti_nccl_config(const ncclConfig_t *given, const ncclConfig_t *parent,
                             ncclConfig_t *config)
{
    const ncclConfig_t none = NCCL_CONFIG_INITIALIZER;
    *config = parent && !given ? *parent : none;
    config_variable(config);
    if (!given)
        return ncclSuccess;
    if (given->magic != none.magic || given->size < offsetof(ncclConfig_t, cgaClusterSize))
        return tti_nccl_fail(ncclInvalidArgument,
                             "the ncclConfig_t has size %zu and magic 0x%x; begin with "
                             "NCCL_CONFIG_INITIALIZER",
                             given->size, given->magic);
    memcpy(config, given, given->size < sizeof *config ? given->size : sizeof *config);
    config->size = sizeof *config;
    config_drop_padding(config);
    config_variable(config);
    return config_values(config);
}

ncclResult_t pncclGetVersion(int *version)
{
    if (!version)
        return tti_nccl_fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    *version = TTI_NCCL_VERSION;
    return ncclSuccess;
}
TTI_NCCL_ALSO(GetVersion);

void pncclResetDebugInit(void)
{
    tti_log_divert(TTI_LOG_ERROR, NULL);
    log_begin();
}
TTI_NCCL_ALSO(ResetDebugInit);
