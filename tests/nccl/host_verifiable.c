/* The data of nccl-tests, made and looked at by the host: a libverifiable.so with the three
 * functions that nccl-tests call for it, whose own are kernels, so that the rest of them runs on
 * the simulated device as it was compiled (bench/gpu/nccl_clients --simulated). The contributions
 * are small whole numbers such that every partial sum and product is exact in every type, eight
 * bits of float too; each result is then compared bit for bit. */
#include "tests/device/reference.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string.h>

/* nccl-tests' number for its ncclRedOpCreatePreMulSum operator, and its scalar. */
enum { PRE_MULTIPLIED = ncclNumOps, SUMMANDS = 4, FACTORS = 3, AVERAGED = 2 };
static int scalar_of(int rank)
{
    return rank % 2 == 0 ? 1 : 2;
}

static uint64_t mixed(uint64_t seed, uint64_t index)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + index;
    (void)reference_random(&state);
    return reference_random(&state);
}

/* Is the rank one of the `chosen` whose contribution is not the neutral one, for this element? */
static int is_chosen(uint64_t bits, int rank, int ranks, int chosen)
{
    return (int)((bits % (uint64_t)ranks + (uint64_t)rank) % (uint64_t)ranks) < chosen;
}

static int contribution(int op, int ranks, int rank, uint64_t bits)
{
    if (ranks == 1) /* moved, not reduced */
        return (int)(bits >> 8) & 7;
    switch (op) {
    case ncclSum:
        return is_chosen(bits, rank, ranks, SUMMANDS) ? 1 + (int)(bits >> 32 & 1) : 0;
    case ncclProd:
        return is_chosen(bits, rank, ranks, FACTORS) ? 2 : 1;
    case ncclAvg:
        return is_chosen(bits, rank, ranks, AVERAGED) ? ranks : 0;
    case PRE_MULTIPLIED:
        return is_chosen(bits, rank, ranks, SUMMANDS) ? 1 : 0;
    default:
        return (int)(mixed(bits, (uint64_t)rank) & 7);
    }
}

static int result_of(int op, int ranks, uint64_t bits)
{
    int result = contribution(op, ranks, 0, bits) * (op == PRE_MULTIPLIED ? scalar_of(0) : 1);
    for (int rank = 1; rank < ranks; rank++) {
        const int next = contribution(op, ranks, rank, bits);
        switch (op) {
        case ncclProd:
            result *= next;
            break;
        case ncclMin:
            result = next < result ? next : result;
            break;
        case ncclMax:
            result = next > result ? next : result;
            break;
        default:
            result += next * (op == PRE_MULTIPLIED ? scalar_of(rank) : 1);
        }
    }
    return op == ncclAvg ? result / ranks : result;
}

static size_t bytes_of(int type)
{
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return bytes[type];
}

static void write_value(void *at, int type, int value)
{
    const uint64_t whole = (uint64_t)value; /* never negative */
    const float single = (float)value;
    const double twice = value;
    static const enum tutti_type small[] = {
        [ncclFloat16] = TUTTI_FLOAT16,
        [ncclBfloat16] = TUTTI_BFLOAT16,
        [ncclFloat8e4m3] = TUTTI_FLOAT8_E4M3,
        [ncclFloat8e5m2] = TUTTI_FLOAT8_E5M2,
    };
    switch (type) {
    case ncclFloat32:
        memcpy(at, &single, sizeof single);
        return;
    case ncclFloat64:
        memcpy(at, &twice, sizeof twice);
        return;
    case ncclFloat16:
    case ncclBfloat16:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2: {
        const unsigned code = reference_encode(reference_format_of(small[type]), value);
        memcpy(at, &code, bytes_of(type));
        return;
    }
    default:
        memcpy(at, &whole, bytes_of(type));
    }
}

/* The simulated device's memory is the host's; what is queued is waited for. */

cudaError_t host_input(void *elements, intptr_t count, int type, int op, int ranks, int rank,
                       uint64_t seed, intptr_t first,
                       cudaStream_t stream) __asm__("_Z26ncclVerifiablePrepareInputPvliiiimlP11CUs"
                                                    "tream_st");
cudaError_t host_input(void *elements, intptr_t count, int type, int op, int ranks, int rank,
                       uint64_t seed, intptr_t first, cudaStream_t stream)
{
    (void)stream;
    const cudaError_t error = cudaDeviceSynchronize();
    for (intptr_t i = 0; i < count; i++)
        write_value((char *)elements + (size_t)i * bytes_of(type), type,
                    contribution(op, ranks, rank, mixed(seed, (uint64_t)(first + i))));
    return error;
}

cudaError_t host_expected(void *elements, intptr_t count, int type, int op, int ranks,
                          uint64_t seed, intptr_t first,
                          cudaStream_t stream) __asm__("_Z29ncclVerifiablePrepareExpectedPvliiiml"
                                                       "P11CUstream_st");
cudaError_t host_expected(void *elements, intptr_t count, int type, int op, int ranks,
                          uint64_t seed, intptr_t first, cudaStream_t stream)
{
    (void)stream;
    const cudaError_t error = cudaDeviceSynchronize();
    for (intptr_t i = 0; i < count; i++)
        write_value((char *)elements + (size_t)i * bytes_of(type), type,
                    result_of(op, ranks, mixed(seed, (uint64_t)(first + i))));
    return error;
}

cudaError_t host_verify(const void *results, const void *expected, intptr_t count, int type, int op,
                        int ranks, uint64_t seed, intptr_t first, int64_t *wrong,
                        cudaStream_t stream) __asm__("_Z20ncclVerifiableVerifyPKvS0_liiimlPlP11CUs"
                                                     "tream_st");
cudaError_t host_verify(const void *results, const void *expected, intptr_t count, int type, int op,
                        int ranks, uint64_t seed, intptr_t first, int64_t *wrong,
                        cudaStream_t stream)
{
    const size_t bytes = bytes_of(type);
    (void)stream;
    const cudaError_t error = cudaDeviceSynchronize();
    *wrong = 0;
    for (intptr_t i = 0; i < count; i++) {
        char computed[8];
        const char *right = computed;
        if (expected)
            right = (const char *)expected + (size_t)i * bytes;
        else
            write_value(computed, type, result_of(op, ranks, mixed(seed, (uint64_t)(first + i))));
        *wrong += memcmp((const char *)results + (size_t)i * bytes, right, bytes) != 0;
    }
    return error;
}
