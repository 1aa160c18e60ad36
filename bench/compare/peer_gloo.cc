// The sweep on Gloo over TCP on loopback. The only C++ here: Gloo has no other interface.
//
// Starts its own ranks as processes, which meet in a temporary folder. Gloo has no reduce-scatter
// that gives one block to each rank, so that one is left out. Read peer_sweep.c for what is timed.
#include "bench/compare/peer_sweep.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace
{

struct rank_state {
    std::shared_ptr<gloo::rendezvous::Context> context;
    enum peer_collective collective;
    bool in_place;
    gloo::AllreduceOptions::Algorithm algorithm;
};

template <typename T>
void reduce_into(rank_state *s, const T *in, T *out, size_t count,
                 void (*function)(void *, const void *, const void *, size_t))
{
    gloo::AllreduceOptions options(s->context);
    options.setAlgorithm(s->algorithm);
    if (in != out) // without an input it works in place
        options.setInput(const_cast<T *>(in), count);
    options.setOutput(out, count);
    options.setReduceFunction(function);
    gloo::allreduce(options);
}

void operate(rank_state *s, const float *in, float *out, size_t count)
{
    float *input = const_cast<float *>(in);
    if (s->collective == PEER_ALL_REDUCE) {
        reduce_into(s, in, out, count, &gloo::sum<float>);
    } else if (s->collective == PEER_BROADCAST) {
        gloo::BroadcastOptions options(s->context);
        options.setRoot(0);
        if (!s->in_place && s->context->rank == 0)
            options.setInput(input, count);
        options.setOutput(out, count);
        gloo::broadcast(options);
    } else {
        gloo::AllgatherOptions options(s->context);
        if (!s->in_place)
            options.setInput(input, count);
        options.setOutput(out, count * static_cast<size_t>(s->context->size));
        gloo::allgather(options);
    }
}

template <typename F> int guarded(F function)
{
    try {
        function();
        return 0;
    } catch (const std::exception &e) {
        fprintf(stderr, "peer_gloo: %s\n", e.what());
        return 1;
    }
}

int operate_guarded(void *self, const float *in, float *out, size_t count)
{
    return guarded([=] { operate(static_cast<rank_state *>(self), in, out, count); });
}

int barrier(void *self)
{
    return guarded([=] {
        gloo::BarrierOptions options(static_cast<rank_state *>(self)->context);
        gloo::barrier(options);
    });
}

int sum(void *self, double value, double *over_ranks)
{
    return guarded([=] {
        reduce_into(static_cast<rank_state *>(self), &value, over_ranks, 1, &gloo::sum<double>);
    });
}

int max(void *self, double value, double *over_ranks)
{
    return guarded([=] {
        reduce_into(static_cast<rank_state *>(self), &value, over_ranks, 1, &gloo::max<double>);
    });
}

int run_rank(const struct peer_options *options, int rank, const std::string &folder)
{
    rank_state state;
    struct peer peer = {rank, options->ranks, &state, operate_guarded, nullptr, barrier, sum, max};
    int status = guarded([&] {
        auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
        gloo::rendezvous::FileStore store(folder);
        state.collective = options->collective;
        state.in_place = options->in_place;
        state.algorithm = strcmp(options->algorithm, "bcube") == 0
                              ? gloo::AllreduceOptions::Algorithm::BCUBE
                              : gloo::AllreduceOptions::Algorithm::RING;
        state.context = std::make_shared<gloo::rendezvous::Context>(rank, options->ranks);
        state.context->connectFullMesh(store, device);
    });
    return status ? status : peer_sweep(&peer, options);
}

} // namespace

int main(int argc, char **argv)
{
    struct peer_options options;
    char folder[] = "/tmp/peer_gloo.XXXXXX";
    std::vector<pid_t> children;
    int status = peer_options_parse(argc, argv, &options);
    if (status)
        return status;
    if (options.uneven || options.collective == PEER_REDUCE_SCATTER ||
        options.collective >= PEER_REDUCE) {
        fprintf(stderr, "peer_gloo: it knows all_reduce, broadcast and all_gather\n");
        return 2;
    }
    if (!mkdtemp(folder)) {
        perror("peer_gloo: /tmp");
        return 1;
    }
    for (int r = 0; r < options.ranks; r++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            int bound = options.bind ? peer_bind(r) : 0;
            fflush(stdout);
            _exit(bound ? 1 : run_rank(&options, r, folder));
        }
        if (pid < 0) {
            perror("peer_gloo: fork");
            status = 1;
            break;
        }
        children.push_back(pid);
    }
    for (pid_t pid : children) {
        int ended = 0;
        if (waitpid(pid, &ended, 0) < 0 || !WIFEXITED(ended) || WEXITSTATUS(ended) != 0)
            status = 1;
    }
    std::error_code ignored; // a folder left in /tmp is no reason to fail
    std::filesystem::remove_all(folder, ignored);
    return status;
}
