/* The names and sizes of the public enumerations: results, types, operators, collectives. */
#include "base/error.h"
#include "base/types.h"

const char *tutti_result_text(enum tutti_result result)
{
    switch (result) {
    case TUTTI_OK:
        return "success";
    case TUTTI_IN_PROGRESS:
        return "in progress";
    case TUTTI_ERR_ARGUMENT:
        return "invalid argument";
    case TUTTI_ERR_UNSUPPORTED:
        return "not supported here";
    case TUTTI_ERR_USAGE:
        return "invalid usage";
    case TUTTI_ERR_MEMORY:
        return "out of memory";
    case TUTTI_ERR_SYSTEM:
        return "system error";
    case TUTTI_ERR_LINK:
        return "link failure";
    case TUTTI_ERR_PEER:
        return "peer failure";
    case TUTTI_ERR_TIMEOUT:
        return "deadline passed";
    case TUTTI_ERR_MISMATCH:
        return "ranks called different operations";
    case TUTTI_ERR_PROTOCOL:
        return "protocol violation";
    case TUTTI_ERR_ABORTED:
        return "communicator aborted";
    case TUTTI_ERR_INTERNAL:
        return "internal error";
    }
    return "unknown result code";
}

const char *tutti_last_error(void)
{
    return tti_error_text();
}

int tutti_version(void)
{
    return TUTTI_VERSION_MAJOR * 10000 + TUTTI_VERSION_MINOR * 100 + TUTTI_VERSION_PATCH;
}

static const char *const type_name[TUTTI_TYPE_COUNT] = {
    [TUTTI_INT8] = "int8",
    [TUTTI_UINT8] = "uint8",
    [TUTTI_INT32] = "int32",
    [TUTTI_UINT32] = "uint32",
    [TUTTI_INT64] = "int64",
    [TUTTI_UINT64] = "uint64",
    [TUTTI_FLOAT16] = "float16",
    [TUTTI_FLOAT32] = "float32",
    [TUTTI_FLOAT64] = "float64",
    [TUTTI_BFLOAT16] = "bfloat16",
    [TUTTI_FLOAT8_E4M3] = "float8_e4m3",
    [TUTTI_FLOAT8_E5M2] = "float8_e5m2",
};

static const char *const op_name[TUTTI_OP_COUNT] = {
    [TUTTI_SUM] = "sum", [TUTTI_PROD] = "prod", [TUTTI_MAX] = "max",
    [TUTTI_MIN] = "min", [TUTTI_AVG] = "avg",
};

static const char *const collective_name[TUTTI_COLLECTIVE_COUNT] = {
    [TUTTI_ALL_REDUCE] = "all_reduce", [TUTTI_BROADCAST] = "broadcast",
    [TUTTI_REDUCE] = "reduce",         [TUTTI_REDUCE_SCATTER] = "reduce_scatter",
    [TUTTI_ALL_GATHER] = "all_gather", [TUTTI_ALL_TO_ALL] = "all_to_all",
    [TUTTI_GATHER] = "gather",         [TUTTI_SCATTER] = "scatter",
    [TUTTI_BARRIER] = "barrier",       [TUTTI_SEND_RECV] = "send_recv",
};

size_t tutti_type_size(enum tutti_type type)
{
    return (unsigned)type < TUTTI_TYPE_COUNT ? tti_type_bytes(type) : 0;
}

const char *tutti_type_name(enum tutti_type type)
{
    return (unsigned)type < TUTTI_TYPE_COUNT ? type_name[type] : "unknown type";
}

const char *tutti_op_name(enum tutti_op op)
{
    if ((unsigned)op >= TUTTI_OP_USER)
        return "premulsum";
    return (unsigned)op < TUTTI_OP_COUNT ? op_name[op] : "unknown operator";
}

const char *tutti_collective_name(enum tutti_collective collective)
{
    return (unsigned)collective < TUTTI_COLLECTIVE_COUNT ? collective_name[collective]
                                                         : "unknown collective";
}
