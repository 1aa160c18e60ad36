/* Results and their texts (nccl_comm.h): ours become NCCL's codes, and the text is kept for
 * ncclGetLastError: by thread, because that is who asks; for the process, because watchdogs ask
 * from threads of their own; and in the communicator that failed. */
#include "nccl/nccl_comm.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char error_text[TTI_ERROR_TEXT_BYTES];
static _Thread_local char error_shown[TTI_ERROR_TEXT_BYTES];
static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;
static char error_of_process[TTI_ERROR_TEXT_BYTES];

static void error_keep(void)
{
    pthread_mutex_lock(&error_lock);
    memcpy(error_of_process, error_text, sizeof error_of_process);
    pthread_mutex_unlock(&error_lock);
    TTI_LOG(TTI_LOG_WARN, "%s", error_text);
}

ncclResult_t tti_nccl_fail(ncclResult_t code, const char *format, ...)
{
    char text[TTI_ERROR_TEXT_BYTES]; /* arguments may point into error_text */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(error_text, text, sizeof text);
    error_keep();
    return code;
}

ncclResult_t tti_nccl_code(enum tutti_result result)
{
    switch (result) {
    case TUTTI_OK:
        return ncclSuccess;
    case TUTTI_IN_PROGRESS:
        return ncclInProgress;
    case TUTTI_ERR_ARGUMENT:
        return ncclInvalidArgument;
    case TUTTI_ERR_UNSUPPORTED:
    case TUTTI_ERR_USAGE:
    case TUTTI_ERR_MISMATCH:
        return ncclInvalidUsage;
    case TUTTI_ERR_MEMORY:
    case TUTTI_ERR_SYSTEM:
        return ncclSystemError;
    case TUTTI_ERR_LINK:
    case TUTTI_ERR_PEER:
    case TUTTI_ERR_PROTOCOL:
    case TUTTI_ERR_ABORTED:
        return ncclRemoteError;
    case TUTTI_ERR_TIMEOUT:
        return ncclTimeout;
    case TUTTI_ERR_INTERNAL:
        break;
    }
    return ncclInternalError;
}

ncclResult_t tti_nccl_result(enum tutti_result result)
{
    if (result == TUTTI_OK)
        return ncclSuccess;
    snprintf(error_text, sizeof error_text, "%s", tti_error_text());
    error_keep();
    return tti_nccl_code(result);
}

const char *tti_nccl_text(void)
{
    return error_text;
}

ncclResult_t tti_nccl_comm_failed(struct ncclComm *comm, ncclResult_t code)
{
    pthread_mutex_lock(&comm->lock);
    if (comm->state == ncclSuccess) {
        memcpy(comm->text, error_text, sizeof comm->text);
        comm->state = code;
    }
    pthread_mutex_unlock(&comm->lock);
    return code;
}

const char *pncclGetLastError(ncclComm_t comm)
{
    error_shown[0] = '\0';
    if (comm && comm->magic == TTI_NCCL_COMM_MAGIC) {
        pthread_mutex_lock(&comm->lock);
        memcpy(error_shown, comm->text, sizeof error_shown);
        pthread_mutex_unlock(&comm->lock);
    }
    if (!error_shown[0])
        memcpy(error_shown, error_text, sizeof error_shown);
    if (!error_shown[0]) {
        pthread_mutex_lock(&error_lock);
        memcpy(error_shown, error_of_process, sizeof error_shown);
        pthread_mutex_unlock(&error_lock);
    }
    return error_shown;
}
TTI_NCCL_ALSO(GetLastError);

const char *pncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "CUDA error (ncclGetLastError says which)";
    case ncclSystemError:
        return "system error (ncclGetLastError says which)";
    case ncclInternalError:
        return "internal error: a bug in Tutti";
    case ncclInvalidArgument:
        return "invalid argument (ncclGetLastError says which)";
    case ncclInvalidUsage:
        return "invalid usage, or not supported (ncclGetLastError says why)";
    case ncclRemoteError:
        return "another rank or the link to it failed (ncclGetLastError says which)";
    case ncclInProgress:
        return "in progress";
    case ncclTimeout:
        return "a deadline passed (ncclGetLastError says who was waited for)";
    case ncclNumResults:
        break;
    }
    return "unknown result code";
}
TTI_NCCL_ALSO(GetErrorString);
