/* Messages with descriptors over the local socket of a connection (shm.h). Datagrams in order
 * (SOCK_SEQPACKET): a message is taken whole or not at all, and the end of the socket is the death
 * or departure of the peer. */
#include "transport/shm/shm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint64_t channel_magic = 0x37306d6873747574u; /* "tutshm07" */

union channel_control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(SHM_MESSAGE_FDS * sizeof(int))];
};

enum shm_io tti_shm_message_send(int socket, const struct shm_message *message, const int *fds,
                                 int count)
{
    struct shm_message copy = *message;
    copy.magic = channel_magic;
    union channel_control control;
    memset(&control, 0, sizeof control);
    struct iovec part = {.iov_base = &copy, .iov_len = sizeof copy};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, (size_t)count * sizeof(int));
    }
    ssize_t sent = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == (ssize_t)sizeof copy)
        return SHM_IO_DONE;
    /* ETOOMANYREFS: too many descriptors under way; they are taken with time. */
    if (sent < 0 &&
        (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ETOOMANYREFS))
        return SHM_IO_LATER;
    return SHM_IO_END;
}

static void channel_close(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

/* Collect the descriptors of a message; more than fit are closed by the kernel (MSG_CTRUNC). */
static int channel_descriptors(struct msghdr *header, int fds[SHM_MESSAGE_FDS])
{
    int count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        int here = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < here; i++) {
            int fd = -1;
            memcpy(&fd, CMSG_DATA(c) + (size_t)i * sizeof fd, sizeof fd);
            if (count < SHM_MESSAGE_FDS)
                fds[count++] = fd;
            else
                close(fd);
        }
    }
    return count;
}

enum shm_io tti_shm_message_take(int socket, struct shm_message *message, int fds[SHM_MESSAGE_FDS],
                                 int *count)
{
    union channel_control control;
    struct shm_message taken;
    struct iovec part = {.iov_base = &taken, .iov_len = sizeof taken};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof control};
    ssize_t bytes = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes < 0 && errno == ECONNRESET) /* said once; what was sent before can still be read */
        bytes = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return SHM_IO_LATER;
    if (bytes < 0)
        return SHM_IO_END;
    int found = channel_descriptors(&header, fds);
    if (bytes == 0) { /* or a message of nothing but descriptors, which is none */
        channel_close(fds, found);
        return SHM_IO_END;
    }
    if (header.msg_flags & MSG_CTRUNC) {
        channel_close(fds, found);
        (void)TTI_FAIL(TUTTI_ERR_SYSTEM, "descriptors passed over a local socket were lost: this "
                                         "process has too many open files; raise `ulimit -n`");
        return SHM_IO_LOST;
    }
    if (bytes != (ssize_t)sizeof taken || (header.msg_flags & MSG_TRUNC) ||
        taken.magic != channel_magic) {
        channel_close(fds, found);
        (void)TTI_FAIL(TUTTI_ERR_PROTOCOL,
                       "a message of %zd bytes on a local socket is not Tutti's", bytes);
        return SHM_IO_BAD;
    }
    *message = taken;
    *count = found;
    return SHM_IO_DONE;
}

bool tti_shm_peer_credentials(int socket, pid_t *pid)
{
    struct ucred who;
    socklen_t bytes = sizeof who;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0 || who.uid != geteuid())
        return false;
    *pid = who.pid;
    return true;
}
