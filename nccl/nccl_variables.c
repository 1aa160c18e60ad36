/* NCCL's variables (nccl_comm.h), of the environment and of its files. Those that say what may be
 * used, or where, become ours; ours win where both are set. Those that tune what only NCCL has are
 * answered with a warning that names what does the same here. */
#include "nccl/nccl_comm.h"

#include "base/config.h"

#include <ctype.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

const struct tti_nccl_variable tti_nccl_variables[] = {
    {"NCCL_DEBUG", NULL},
    {"NCCL_DEBUG_FILE", NULL},
    {"NCCL_CONF_FILE", NULL},
    {"NCCL_SOCKET_IFNAME", NULL},
    {"NCCL_COMM_ID", NULL},
    {"NCCL_COMM_BLOCKING", NULL},
    {"NCCL_HOSTID", NULL},
    {"NCCL_NET", NULL},
    {"NCCL_NET_PLUGIN", NULL},
    {"NCCL_P2P_DISABLE", NULL},
    {"NCCL_P2P_DIRECT_DISABLE", NULL},
    {"NCCL_CUMEM_ENABLE", NULL},
    {"NCCL_NET_GDR_LEVEL", NULL},
    {"NCCL_IB_DISABLE", NULL},
    {"NCCL_IB_HCA", NULL},
    {"NCCL_IB_GID_INDEX", NULL},
    {"NCCL_IB_ROCE_VERSION_NUM", NULL},
    {"NCCL_IB_QPS_PER_CONNECTION", NULL},
    {"NCCL_IB_TC", NULL},
    {"NCCL_IB_SL", NULL},
    {"NCCL_IB_PKEY", NULL},
    {"NCCL_DEBUG_SUBSYS", "NCCL_DEBUG or TUTTI_LOG, which show all parts of the library"},
    {"NCCL_ALGO", "TUTTI_ALGO=ring, or all_reduce=tree,broadcast=chain"},
    {"NCCL_PROTO", "TUTTI_ALGO and TUTTI_DEVICE_PATH: protocols follow from them"},
    {"NCCL_NTHREADS", "nothing: kernels choose their own threads"},
    {"NCCL_MAX_NCHANNELS", "TUTTI_LANES"},
    {"NCCL_MIN_NCHANNELS", "TUTTI_LANES"},
    {"NCCL_MAX_CTAS", "TUTTI_LANES"},
    {"NCCL_MIN_CTAS", "TUTTI_LANES"},
    {"NCCL_NCHANNELS_PER_NET_PEER", "TUTTI_LANES"},
    {"NCCL_MAX_P2P_NCHANNELS", "TUTTI_LANES"},
    {"NCCL_MIN_P2P_NCHANNELS", "TUTTI_LANES"},
    {"NCCL_CGA_CLUSTER_SIZE", "nothing: kernels are launched without clusters"},
    {"NCCL_CTA_POLICY", "nothing: kernels choose their own blocks"},
    {"NCCL_BUFFSIZE", "TUTTI_DEVICE_MEMORY or TUTTI_DEVICE_CHUNK"},
    {"NCCL_P2P_LEVEL", "TUTTI_DEVICE_PATH=staged, window or coupled"},
    {"NCCL_SHM_DISABLE", "TUTTI_TRANSPORT=tcp"},
    {"NCCL_CUMEM_HOST_ENABLE", "nothing: memory that ranks share needs no /dev/shm"},
    {"NCCL_NVLS_ENABLE", "TUTTI_NVLS, from which size on (off if it is not set)"},
    {"NCCL_COLLNET_ENABLE", "nothing: there are no reductions in the network"},
    {"NCCL_LAUNCH_MODE", "nothing: each rank launches its own kernels"},
    {"NCCL_GRAPH_REGISTER", "TUTTI_DEVICE_MAP, from which size on"},
    {"NCCL_LOCAL_REGISTER", "TUTTI_DEVICE_MAP, from which size on"},
    {"NCCL_WIN_ENABLE", "nothing: windows are always there"},
    {"NCCL_IB_TIMEOUT", "TUTTI_RDMA_OUTAGE, in seconds"},
    {"NCCL_IB_RETRY_CNT", "TUTTI_RDMA_OUTAGE, in seconds"},
    {"NCCL_IB_AR_THRESHOLD", "nothing: order does not matter to what is sent"},
    {"NCCL_IB_PCI_RELAXED_ORDERING", "nothing"},
    {"NCCL_IB_CUDA_SUPPORT", "TUTTI_DEVICE_DIRECT"},
    {"NCCL_NET_GDR_READ", "TUTTI_DEVICE_DIRECT"},
    {"NCCL_DMABUF_ENABLE", "TUTTI_DEVICE_DIRECT"},
    {"NCCL_CROSS_NIC", "TUTTI_NIC_NEAR; no rail is crossed that can be kept to"},
    {"NCCL_NETDEVS_POLICY", "TUTTI_NIC_NEAR"},
    {"NCCL_SOCKET_FAMILY", "TUTTI_IFNAME; of each interface IPv4 and IPv6 are tried"},
    {"NCCL_SOCKET_NTHREADS", "TUTTI_TCP_SOCKETS"},
    {"NCCL_NSOCKS_PERTHREAD", "TUTTI_TCP_SOCKETS"},
    {"NCCL_TOPO_FILE", "TUTTI_TOPOLOGY, a file as tutti-topo or hwloc writes it"},
    {"NCCL_TOPO_DUMP_FILE", "tutti-topo"},
    {"NCCL_GRAPH_FILE", "nothing; tutti-topo shows rings and trees"},
    {"NCCL_IGNORE_CPU_AFFINITY", "TUTTI_PROGRESS_CORE; no other thread is bound"},
    {"NCCL_CHECK_POINTERS", "nothing: they are always checked"},
    {"NCCL_RAS_ENABLE", "tutti-status, which needs no setting"},
    {"NCCL_RAS_ADDR", "tutti-status, which needs no setting"},
    {"NCCL_TUNER_PLUGIN", "TUTTI_TUNING, a file that tutti-tune writes"},
    {"NCCL_PROFILER_PLUGIN", "nothing yet"},
};
const size_t tti_nccl_variable_count = sizeof tti_nccl_variables / sizeof *tti_nccl_variables;

/* What begins with NCCL_ and is not meant for the library: of PyTorch, nccl-tests, builds and
 * images. */
static const char *const foreign[] = {"NCCL_ASYNC_ERROR_HANDLING",
                                      "NCCL_BLOCKING_WAIT",
                                      "NCCL_DESYNC_DEBUG",
                                      "NCCL_ENABLE_TIMING",
                                      "NCCL_TESTS_",
                                      "NCCL_HOME",
                                      "NCCL_ROOT",
                                      "NCCL_INCLUDE",
                                      "NCCL_LIB",
                                      "NCCL_VERSION"};

/* ---- files ---- */

/* A line "NCCL_NAME = value"; # begins a comment. The environment wins, and earlier files. NCCL's
 * own go into the environment, where plugins look for them. */
static void variables_line(char *line)
{
    line[strcspn(line, "#\n")] = '\0';
    char *name = line + strspn(line, " \t"), *equals = strchr(name, '=');
    if (!equals || (strncmp(name, "NCCL_", 5) != 0 && strncmp(name, "TUTTI_", 6) != 0))
        return;
    char *value = equals + 1 + strspn(equals + 1, " \t");
    *equals = '\0';
    name[strcspn(name, " \t")] = '\0';
    size_t length = strlen(value);
    while (length > 0 && isspace((unsigned char)value[length - 1]))
        value[--length] = '\0';
    if (strncmp(name, "NCCL_", 5) == 0)
        setenv(name, value, 0);
    else if (!tti_config_text(name))
        (void)tti_config_preset(name, value); /* without memory: as if it were not there */
}

static bool variables_file(const char *path)
{
    char line[1024];
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while (fgets(line, sizeof line, file))
        variables_line(line);
    fclose(file);
    return true;
}

/* NCCL_CONF_FILE, else ~/.nccl.conf; and /etc/nccl.conf. False: there is none of the name `path`
 * that the variable gives. */
static bool variables_files(char *path, size_t room)
{
    bool found = true;
    const char *own = tti_config_text("NCCL_CONF_FILE"), *home = tti_config_text("HOME");
    if (own && !(own[0] == '~' && own[1] == '/'))
        snprintf(path, room, "%s", own);
    else if (home)
        snprintf(path, room, "%s/%s", home, own ? own + 2 : ".nccl.conf");
    if (path[0])
        found = variables_file(path);
    (void)variables_file("/etc/nccl.conf");
    return found || !own;
}

/* ---- lists of names ---- */

/* Our setting by NCCL's variable, unless it is set. */
static void settings_ours(const char *name, const char *ours, const char *value)
{
    if (tti_config_text(ours))
        return;
    if (tti_config_preset(ours, value) == TUTTI_OK)
        TTI_LOG(TTI_LOG_INFO, "%s=%s, by %s=%s", ours, value, name, tti_config_text(name));
}

/* Appends the text, after a comma if it is not the first. */
static void list_add(char *list, size_t room, const char *before, const char *text, size_t bytes)
{
    const size_t used = strlen(list);
    snprintf(list + used, room - used, "%s%s%.*s", used ? "," : "", before, (int)bytes, text);
}

/* NCCL's lists of names begin with "^" if these are not wanted, and then with "=" if they are whole
 * names and not beginnings. */
struct names {
    const char *rest; /* NULL: the variable is not set */
    bool but, whole;
};

static struct names names_of(const char *variable)
{
    struct names names = {.rest = tti_config_text(variable)};
    if (!names.rest)
        return names;
    names.but = *names.rest == '^';
    names.rest += names.but;
    names.whole = *names.rest == '=';
    names.rest += names.whole;
    return names;
}

/* The next name at *name, and its bytes; 0: there is none. */
static size_t names_next(struct names *names, const char **name)
{
    *name = names->rest + strspn(names->rest, ", ");
    const size_t bytes = strcspn(*name, ", ");
    names->rest = *name + bytes;
    return bytes;
}

static bool interface_is_there(const struct ifaddrs *all, const char *name, size_t bytes,
                               bool whole)
{
    for (; all; all = all->ifa_next)
        if (strncmp(all->ifa_name, name, bytes) == 0 && (!whole || strlen(all->ifa_name) == bytes))
            return true;
    return false;
}

/* TUTTI_IFNAME has the signs of NCCL_SOCKET_IFNAME before each name, and refuses one that is not
 * there, as it is in lists that are made for many kinds of hosts: such are left out, unless all
 * are. */
static void settings_interface(void)
{
    struct names names = names_of("NCCL_SOCKET_IFNAME");
    char all[512] = "", there[512] = "";
    struct ifaddrs *interfaces = NULL;
    const char *name = NULL;
    if (!names.rest)
        return;
    if (getifaddrs(&interfaces) != 0)
        interfaces = NULL;
    for (size_t bytes; (bytes = names_next(&names, &name)) > 0;) {
        const char *before = names.but ? names.whole ? "^=" : "^" : names.whole ? "=" : "";
        list_add(all, sizeof all, before, name, bytes);
        if (names.but || interface_is_there(interfaces, name, bytes, names.whole))
            list_add(there, sizeof there, before, name, bytes);
    }
    if (interfaces)
        freeifaddrs(interfaces);
    if (all[0])
        settings_ours("NCCL_SOCKET_IFNAME", "TUTTI_IFNAME", there[0] ? there : all);
}

/* In NCCL_IB_HCA a port may stand after ":". TUTTI_RDMA_DEVICES has patterns. */
static void settings_devices(void)
{
    struct names names = names_of("NCCL_IB_HCA");
    char all[512] = "";
    const char *name = NULL;
    if (!names.rest)
        return;
    for (size_t bytes; (bytes = names_next(&names, &name)) > 0;) {
        char one[96];
        const char *colon = memchr(name, ':', bytes);
        const int device = (int)(colon ? (size_t)(colon - name) : bytes);
        snprintf(one, sizeof one, "%.*s%s%.*s", device, name, names.whole ? "" : "*",
                 (int)bytes - device, name + device);
        list_add(all, sizeof all, names.but ? "^" : "", one, strlen(one));
    }
    if (all[0])
        settings_ours("NCCL_IB_HCA", "TUTTI_RDMA_DEVICES", all);
}

/* ---- what may be used ---- */

static bool variable_is(const char *name, const char *value)
{
    const char *text = tti_config_text(name);
    return text && strcasecmp(text, value) == 0;
}

/* Which transports there may be, between hosts: the best of all, if nothing is said. */
void tti_nccl_transports(const char *network, bool ib, char *list, size_t room)
{
    const bool socket = network && strcasecmp(network, "Socket") == 0;
    const bool verbs = network && strcasecmp(network, "IB") == 0;
    const char *plugin = tti_config_text("NCCL_NET_PLUGIN");
    list[0] = '\0';
    if (!socket && !verbs && ib)
        return;
    snprintf(list, room, "inproc,shm%s%s%s",
             plugin && strcasecmp(plugin, "none") != 0 && !socket && !verbs ? ",ncclnet" : "",
             ib && !socket ? ",rdma" : "", verbs ? "" : ",tcp");
}

static void settings_transports(void)
{
    const char *network = tti_config_text("NCCL_NET");
    char list[64];
    const bool named = variable_is("NCCL_NET", "Socket") || variable_is("NCCL_NET", "IB");
    tti_nccl_transports(network, !variable_is("NCCL_IB_DISABLE", "1"), list, sizeof list);
    if (list[0])
        settings_ours(named ? "NCCL_NET" : "NCCL_IB_DISABLE", "TUTTI_TRANSPORT", list);
    else if (network && !tti_config_text("NCCL_NET_PLUGIN"))
        TTI_LOG(TTI_LOG_WARN,
                "NCCL_NET is \"%s\", which is not Socket or IB: that of a plugin is taken if "
                "NCCL_NET_PLUGIN names it",
                network);
}

/* `ours` gets the value of NCCL's, if that is a number from least to most. */
static void settings_number(const char *name, const char *ours, long least, long most)
{
    long value = 0;
    const char *text = tti_config_text(name);
    if (!text || tti_config_text(ours))
        return;
    if (tti_parse_int(name, text, least, most, &value) == TUTTI_OK)
        settings_ours(name, ours, text);
    else if (strcmp(text, "-1") != 0) /* NCCL's own default of some */
        TTI_LOG(TTI_LOG_WARN, "%s; %s is not set by it", tti_error_text(), ours);
}

/* `ours` gets `value` if NCCL's variable is `when`. */
static void settings_when(const char *name, const char *when, const char *ours, const char *value)
{
    if (variable_is(name, when))
        settings_ours(name, ours, value);
}

static void settings_map(void)
{
    const char *host = tti_config_text("NCCL_HOSTID");
    settings_interface();
    settings_devices();
    settings_transports();
    if (host)
        settings_ours("NCCL_HOSTID", "TUTTI_HOST_ID", host);
    settings_when("NCCL_P2P_DISABLE", "1", "TUTTI_DEVICE_PATH", "staged");
    settings_when("NCCL_P2P_DIRECT_DISABLE", "1", "TUTTI_DEVICE_BUFFERS", "window");
    settings_when("NCCL_CUMEM_ENABLE", "0", "TUTTI_DEVICE_HANDLES", "ipc");
    settings_when("NCCL_NET_GDR_LEVEL", "LOC", "TUTTI_DEVICE_DIRECT", "off");
    settings_when("NCCL_NET_GDR_LEVEL", "0", "TUTTI_DEVICE_DIRECT", "off");
    settings_number("NCCL_IB_GID_INDEX", "TUTTI_RDMA_GID_INDEX", 0, 255);
    settings_number("NCCL_IB_ROCE_VERSION_NUM", "TUTTI_RDMA_ROCE", 1, 2);
    settings_number("NCCL_IB_QPS_PER_CONNECTION", "TUTTI_RDMA_QPS", 1, 16);
    settings_number("NCCL_IB_TC", "TUTTI_RDMA_TRAFFIC_CLASS", 0, 255);
    settings_number("NCCL_IB_SL", "TUTTI_RDMA_SERVICE_LEVEL", 0, 15);
    settings_number("NCCL_IB_PKEY", "TUTTI_RDMA_PKEY_INDEX", 0, 65535);
}

/* ---- what has no effect ---- */

static bool variable_known(const char *entry)
{
    const size_t bytes = strcspn(entry, "=");
    for (size_t i = 0; i < tti_nccl_variable_count; i++)
        if (strlen(tti_nccl_variables[i].name) == bytes &&
            strncmp(tti_nccl_variables[i].name, entry, bytes) == 0)
            return true;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (strncmp(foreign[i], entry, strlen(foreign[i])) == 0)
            return true;
    return false;
}

static void settings_warn(void)
{
    for (size_t i = 0; i < tti_nccl_variable_count; i++) {
        const struct tti_nccl_variable *variable = &tti_nccl_variables[i];
        const char *value = variable->instead ? tti_config_text(variable->name) : NULL;
        if (value)
            TTI_LOG(TTI_LOG_WARN, "%s=%s has no effect on Tutti; instead: %s", variable->name,
                    value, variable->instead);
    }
    for (char **entry = environ; entry && *entry; entry++)
        if (strncmp(*entry, "NCCL_", 5) == 0 && !variable_known(*entry))
            TTI_LOG(TTI_LOG_WARN, "%s is not known to Tutti, and has no effect", *entry);
}

void tti_nccl_variables_read(void (*log_begin)(void))
{
    char path[1024] = "";
    const bool found = variables_files(path, sizeof path);
    log_begin();
    if (!found)
        TTI_LOG(TTI_LOG_WARN, "NCCL_CONF_FILE: the file %s cannot be read", path);
    settings_map();
    settings_warn();
}
