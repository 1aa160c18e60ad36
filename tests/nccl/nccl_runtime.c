/* A program as NCCL's users write them, in CUDA's runtime and nccl.h alone: one thread that drives
 * all devices of its process, with groups, events and a captured graph. It runs here on a runtime
 * made of the simulated device (tests/device/fake_cudart.c); with NVIDIA's it would run on GPUs.
 * "first": the communicators come before any call of CUDA. "by_rank": each with its device current.
 * "no_driver": the driver does not start. */
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "tests/nccl/nccl_check.h"

enum { MOST = 8, COUNT = 3000, REPLAYS = 3 };

#define CUDA(call)                                                            \
    do {                                                                      \
        const cudaError_t cuda_error_ = (call);                               \
        if (cuda_error_ != cudaSuccess) {                                     \
            fprintf(stderr, "%s:%d: %s: %s; %s\n", __FILE__, __LINE__, #call, \
                    cudaGetErrorString(cuda_error_), ncclGetLastError(NULL)); \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

static int ranks;
static ncclComm_t comms[MOST];
static cudaStream_t streams[MOST];
static float *in[MOST], *out[MOST];

static void write_in(float value)
{
    static float host[COUNT];
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < COUNT; i++)
            host[i] = value * (float)(r + 1);
        CUDA(cudaSetDevice(r));
        CUDA(cudaMemcpy(in[r], host, sizeof host, cudaMemcpyHostToDevice));
        CUDA(cudaMemset(out[r], 0xff, sizeof host));
    }
}

static void expect(float value, int by_rank)
{
    static float host[COUNT];
    for (int r = 0; r < ranks; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaStreamSynchronize(streams[r]));
        CUDA(cudaMemcpy(host, out[r], sizeof host, cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT; i++)
            CHECK(host[i] == value * (float)(by_rank ? (r + ranks - 1) % ranks + 1 : 1));
    }
}

static void all_reduce(void)
{
    OK(ncclGroupStart());
    for (int r = 0; r < ranks; r++)
        OK(ncclAllReduce(in[r], out[r], COUNT, ncclFloat, ncclSum, comms[r], streams[r]));
    OK(ncclGroupEnd());
}

/* Each to the next one, around. */
static void shift(void)
{
    OK(ncclGroupStart());
    for (int r = 0; r < ranks; r++) {
        OK(ncclSend(in[r], COUNT, ncclFloat, (r + 1) % ranks, comms[r], streams[r]));
        OK(ncclRecv(out[r], COUNT, ncclFloat, (r + ranks - 1) % ranks, comms[r], streams[r]));
    }
    OK(ncclGroupEnd());
}

/* The streams of all devices are captured together, each into a graph of its own. */
static void captured(void)
{
    cudaGraphExec_t execs[MOST];
    for (int r = 0; r < ranks; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaStreamBeginCapture(streams[r], cudaStreamCaptureModeThreadLocal));
    }
    all_reduce();
    cudaGraph_t graphs[MOST];
    for (int r = 0; r < ranks; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaStreamEndCapture(streams[r], &graphs[r]));
    }
    for (int r = 0; r < ranks; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaGraphInstantiate(&execs[r], graphs[r], 0));
        CUDA(cudaGraphDestroy(graphs[r]));
    }
    for (int k = 1; k <= REPLAYS; k++) {
        write_in((float)k);
        for (int r = 0; r < ranks; r++) {
            CUDA(cudaSetDevice(r));
            CUDA(cudaGraphLaunch(execs[r], streams[r]));
        }
        expect((float)(k * ranks * (ranks + 1)) / 2, 0);
    }
    for (int r = 0; r < ranks; r++)
        CUDA(cudaGraphExecDestroy(execs[r]));
}

static void make_by_rank(void)
{
    ncclUniqueId id;
    int device = -1;
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    for (int r = 0; r < ranks; r++) {
        CUDA(cudaSetDevice(ranks - 1 - r));
        OK(ncclCommInitRank(&comms[ranks - 1 - r], ranks, id, ranks - 1 - r));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < ranks; r++) {
        OK(ncclCommCuDevice(comms[r], &device));
        CHECK(device == r);
    }
}

/* What does not need a device works. */
static int without_driver(void)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    int word = 3;
    void *memory = NULL;
    OK(ncclGetUniqueId(&id));
    OK(ncclCommInitRank(&comm, 1, id, 0));
    OK(ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, comm, NULL));
    CHECK(word == 3);
    OK(ncclMemAlloc(&memory, COUNT));
    memset(memory, 0, COUNT);
    OK(ncclMemFree(memory));
    OK(ncclCommDestroy(comm));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "no_driver") == 0)
        return without_driver();
    struct cudaDeviceProp prop;
    int device = -1;
    if (argc > 1 && strcmp(argv[1], "first") == 0)
        ranks = 2; /* nothing of CUDA is called before */
    else
        CUDA(cudaGetDeviceCount(&ranks));
    CHECK(ranks >= 2 && ranks <= MOST);
    if (argc > 1 && strcmp(argv[1], "by_rank") == 0)
        make_by_rank();
    else
        OK(ncclCommInitAll(comms, ranks, NULL));
    CUDA(cudaGetDeviceProperties(&prop, 0));
    for (int r = 0; r < ranks; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaGetDevice(&device));
        CHECK(device == r);
        CUDA(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking));
        CUDA(cudaMalloc((void **)&in[r], COUNT * sizeof(float)));
        CUDA(cudaMalloc((void **)&out[r], COUNT * sizeof(float)));
    }
    write_in(3);
    all_reduce();
    expect(3.0F * (float)(ranks * (ranks + 1)) / 2, 0);
    write_in(5);
    shift();
    expect(5, 1);
    captured();
    CHECK(cudaSetDevice(MOST) == cudaErrorInvalidDevice);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaSuccess);
    for (int r = 0; r < ranks; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaFree(in[r]));
        CUDA(cudaFree(out[r]));
        CUDA(cudaStreamDestroy(streams[r]));
        OK(ncclCommDestroy(comms[r]));
    }
    printf("%d devices of \"%s\": all right\n", ranks, prop.name);
    return 0;
}
