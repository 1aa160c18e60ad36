/* Preloaded (LD_PRELOAD) into a rank by faults.py: a faulty card. Of what its TCP sockets hand out,
 * every FAULT_FLIP-th byte has a bit that was not sent; TCP's own checksum has been looked at by
 * then. What comes in small pieces (handshakes, the rendezvous) is left alone, so that streams
 * break and not the making of them. After FAULT_FLIPS of them the card is mended. Says the first as
 * an event of the rank, and when the process ends how many there were and when the first was, in
 * CLOCK_MONOTONIC. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef ssize_t recv_function(int, void *, size_t, int);
typedef ssize_t recvmsg_function(int, struct msghdr *, int);

enum { FLIP_LEAST = 16384 }; /* bytes of a read that is of a stream */

static _Atomic uint64_t flip_seen, flip_done;
static struct timespec flip_first;

static uint64_t flip_number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

static __attribute__((destructor)) void flip_tell(void)
{
    fprintf(stderr, "fault_flip: %llu bits since %lld.%09ld\n", (unsigned long long)flip_done,
            (long long)flip_first.tv_sec, flip_first.tv_nsec);
}

static void flip_in(unsigned char *data, size_t bytes)
{
    static uint64_t every, most;
    if (!every) {
        most = flip_number("FAULT_FLIPS");
        every = flip_number("FAULT_FLIP");
    }
    if (!every)
        return;
    const uint64_t from = flip_seen;
    flip_seen += bytes;
    for (uint64_t at = (from / every + 1) * every; at < from + bytes; at += every)
        if (flip_done < most) {
            if (flip_done == 0) {
                clock_gettime(CLOCK_MONOTONIC, &flip_first);
                dprintf(STDOUT_FILENO, "%lld.%09ld flipped\n", (long long)flip_first.tv_sec,
                        flip_first.tv_nsec);
            }
            data[at - from] ^= (unsigned char)(1u << flip_done % 8);
            flip_done++;
        }
}

ssize_t recv(int socket, void *data, size_t room, int flags)
{
    static recv_function *real;
    if (!real) {
        void *found = dlsym(RTLD_NEXT, "recv");
        memcpy(&real, &found, sizeof real);
    }
    const ssize_t got = real(socket, data, room, flags);
    if (got >= FLIP_LEAST)
        flip_in(data, (size_t)got);
    return got;
}

ssize_t recvmsg(int socket, struct msghdr *message, int flags)
{
    static recvmsg_function *real;
    if (!real) {
        void *found = dlsym(RTLD_NEXT, "recvmsg");
        memcpy(&real, &found, sizeof real);
    }
    const ssize_t got = real(socket, message, flags);
    size_t left = got >= FLIP_LEAST ? (size_t)got : 0;
    for (size_t i = 0; left > 0; i++) {
        struct iovec *piece = &message->msg_iov[i];
        const size_t here = piece->iov_len < left ? piece->iov_len : left;
        flip_in(piece->iov_base, here);
        left -= here;
    }
    return got;
}
