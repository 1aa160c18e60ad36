// nccl.h in C++, with all warnings: what programs of that language write at the least.
#include <nccl.h>

int tti_nccl_cplusplus();

int tti_nccl_cplusplus()
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ncclRedOp_t op = ncclAvg;
    ncclUniqueId id{};
    ncclComm_t comm = nullptr;
    config.blocking = 0;
    if (ncclGroupStart() != ncclSuccess || ncclGroupSimulateEnd(&info) != ncclSuccess)
        return 1;
    if (ncclGetUniqueId(&id) != ncclSuccess ||
        ncclCommInitRankConfig(&comm, 1, id, 0, &config) != ncclSuccess)
        return 1;
    float value = 0;
    return ncclAllReduce(&value, &value, 1, ncclFloat, op, comm, nullptr) == ncclSuccess ? 0 : 1;
}
