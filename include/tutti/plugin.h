/* The transport interface: how bytes get from one rank to another.
 *
 * One table of operations, reached by two doors: compiled in (transport/registry.c lists them) or
 * loaded from a shared object named in TUTTI_PLUGINS, which exports
 *     const struct tutti_transport_ops *tutti_transport(void);
 * examples/plugin/ has a complete one in a single short file. tests/conformance runs on every
 * transport, a loaded one too:  build/bin/tutti-conformance --plugin PATH.so.
 *
 * What a transport offers: between two ranks, `lanes` ordered, reliable streams of fragments in
 * each direction. A fragment is what one successful send accepted: a tag and some bytes. The
 * library knows from its plan how many bytes to expect; fragments of a message need not arrive in
 * the same pieces as they were sent, but bytes of different tags are never mixed.
 *
 * Threads: all calls on one transport object, and on its endpoints, come from one thread at a time.
 * Objects of different communicators and ranks are used concurrently.
 * Blocking: no operation blocks except where its comment says so; those take a deadline.
 * Errors: the comment lists those an operation may give. `fail` of the services (or TTI_FAIL inside
 * the library) must have been called with a text that names the peer and the object.
 * Sizes: every number of bytes accepted, peeked or consumed is a multiple of
 * TUTTI_FRAGMENT_UNIT, or all that is left of the caller's range or of the fragment. */
#ifndef TUTTI_PLUGIN_H
#define TUTTI_PLUGIN_H

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_TRANSPORT_ABI 1
#define TUTTI_FRAGMENT_UNIT 64
#define TUTTI_ADDRESS_BYTES 512 /* the most that `address` may write */
#define TUTTI_SECRET_BYTES 32
#define TUTTI_MAX_LANES 16

/* What one rank knows of another. Pointers stay valid while the transport is open. */
struct tutti_peer {
    int rank;
    int local_rank;
    const char *name;    /* "host:pid", for messages */
    uint64_t host;       /* equal on ranks that share a kernel and a network namespace */
    uint64_t process;    /* equal on ranks that are threads of one process */
    int64_t pid;         /* on its host */
    const void *address; /* what that rank's `address` wrote for this transport */
    size_t address_bytes;
};

/* What the library offers to a transport. Valid for ever. */
struct tutti_services {
    size_t size; /* sizeof(struct tutti_services) of the library */
    /* Record the last-error text of this thread; returns `code`. */
    enum tutti_result (*fail)(enum tutti_result code, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
    /* A log line; level 1 error .. 5 trace. */
    void (*log)(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
};

/* What `open` is given. Pointers stay valid while the transport is open. */
struct tutti_transport_env {
    size_t size; /* sizeof(struct tutti_transport_env) of the library */
    const struct tutti_services *services;
    uint64_t job;          /* number of the communicator, the same on all its ranks */
    const uint8_t *secret; /* TUTTI_SECRET_BYTES, the same on all ranks; connections prove it */
    int rank;
    int nranks;
    const char *name; /* own "host:pid" */
    int lanes;        /* the most lanes that any endpoint will use */
    /* Names that the system gives to NICs of this host (interfaces, RDMA devices), parted by
     * commas: others that serve as well are nearer to this rank's GPU or cores. It should send and
     * receive by those; by these where nothing else connects. NULL: no NIC is known to be. There
     * if `size` covers it: it came later than the members above. */
    const char *far_nics;
    /* Of the nranks those on this host, this one included; 0: not known. There likewise. */
    int host_ranks;
};

/* A range of one rank's memory, as its `offer` describes it to a peer's `map`. Opaque. */
struct tutti_place {
    uint64_t region, offset;
};

/* An allocation in the memory of a GPU, which the host itself must not touch. */
struct tutti_device_memory {
    size_t size; /* sizeof(struct tutti_device_memory) of the library */
    const void *base;
    size_t bytes;
    uint64_t id; /* no other allocation of this process ever has it */
    /* A descriptor, the caller's, of a dmabuf in which the allocation begins at *offset. May give
     * UNSUPPORTED, ARGUMENT (it is gone), SYSTEM. */
    enum tutti_result (*dmabuf)(const struct tutti_device_memory *memory, int *fd,
                                uint64_t *offset);
};

/* Operations are only ever added at the end: a table that ends before some of the optional ones is
 * a transport without them. */
struct tutti_transport_ops {
    uint32_t abi;  /* TUTTI_TRANSPORT_ABI */
    uint32_t size; /* sizeof(struct tutti_transport_ops) */
    const char *name;
    int rank; /* preference: lower is tried first (inproc 10, shm 20, rdma 30, tcp 40) */

    /* ---- control: the calling thread holds the communicator; never in a hot path ---- */

    /* Can this machine use the transport at all? TUTTI_OK, or TUTTI_ERR_UNSUPPORTED with a text
     * that says what is missing. */
    enum tutti_result (*probe)(const struct tutti_services *services);
    /* Open for one rank of one communicator; start to listen. May give ARGUMENT, UNSUPPORTED,
     * MEMORY, SYSTEM. */
    enum tutti_result (*open)(const struct tutti_transport_env *env, void **transport);
    /* Release everything: endpoints, sockets, descriptors, threads, mappings. Bounded: what was
     * accepted by send and still lies in buffers is flushed for a few seconds at most. tcp takes
     * one, and one more where TUTTI_TCP_ZEROCOPY has the kernel read it still; rdma takes
     * TUTTI_RDMA_OUTAGE (3.5 s), for which its link may be silent, and then what its tcp takes. */
    void (*close)(void *transport);
    /* Write what peers need to reach this rank, *bytes <= TUTTI_ADDRESS_BYTES. */
    enum tutti_result (*address)(void *transport, void *address, size_t *bytes);
    /* Can this rank and that one talk over this transport? Both sides must come to the same
     * answer from the same two addresses and identities. */
    bool (*reaches)(void *transport, const struct tutti_peer *peer);
    /* Begin to connect; both sides call it, in any order, far apart in time. */
    enum tutti_result (*connect)(void *transport, const struct tutti_peer *peer, int lanes,
                                 void **endpoint);
    /* TUTTI_OK once connected (also when the peer has sent something and closed again meanwhile),
     * IN_PROGRESS before. May give LINK, PEER, PROTOCOL, MEMORY, SYSTEM.
     * The library calls it again, sleeping on `fd` in between, until its own deadline. */
    enum tutti_result (*advance)(void *endpoint);
    /* End one connection, established or not. */
    void (*disconnect)(void *endpoint);

    /* ---- hot: one endpoint, one lane ---- */

    /* Offer `bytes` (> 0) with `tag`. *accepted of them (maybe 0) are one fragment from here on;
     * their memory stays the transport's until `released` counts them. Ownership of the rest does
     * not change. May give LINK, PEER, SYSTEM. */
    enum tutti_result (*send)(void *endpoint, int lane, uint64_t tag, const void *data,
                              size_t bytes, size_t *accepted);
    /* How many bytes of this lane, counted in the order of sending since the connection was made,
     * are the caller's memory again: the first so many, without a gap. Equals the sum of all
     * `accepted` (and committed) when nothing is under way. */
    uint64_t (*released)(void *endpoint, int lane);
    /* Optional (both or neither may be NULL): build a fragment in the transport's own memory.
     * `reserve` gives up to `want` bytes of room, 0 when there is none now; `commit` sends the
     * first `bytes` (0: none) of it. Nothing else happens on the lane in between. */
    size_t (*reserve)(void *endpoint, int lane, size_t want, void **room);
    enum tutti_result (*commit)(void *endpoint, int lane, uint64_t tag, size_t bytes);
    /* Look at what has arrived: *bytes readable at *data, all with *tag; 0 when nothing has. Bytes
     * stay readable until consumed; peeking again gives the same ones (and maybe more). May give
     * LINK, PEER, PROTOCOL, SYSTEM. */
    enum tutti_result (*peek)(void *endpoint, int lane, uint64_t *tag, const void **data,
                              size_t *bytes);
    /* Hand back the first `bytes` of what was peeked. */
    void (*consume)(void *endpoint, int lane, size_t bytes);
    /* Optional: like peek and consume, but into the caller's memory without a stop on the way.
     * *taken of at most `bytes` were written to `into`, all with *tag; 0 when nothing has arrived.
     * May wait while a peer that copies there, too, is held up: nobody writes to `into` after it,
     * but after LINK, which that gives after a minute. Errors as peek. */
    enum tutti_result (*receive)(void *endpoint, int lane, uint64_t *tag, void *into, size_t bytes,
                                 size_t *taken);

    /* ---- waiting ---- */

    /* Move what can be moved. Called often while the library spins; memory transports make no
     * system call in it more often than every millisecond (to see whether peers live). A peer that
     * left is not reported here, since nothing may be wanted from it any more, but by peek (once
     * everything that it sent is consumed), receive and send on its endpoint. May give PROTOCOL,
     * SYSTEM. */
    enum tutti_result (*progress)(void *transport);
    /* A descriptor that polls readable when progress, peek, released, reserve or advance may have
     * something new. Constant while open. */
    int (*fd)(void *transport);
    /* The caller is about to sleep on `fd`: make peers wake it. Returns false when something may
     * have arrived meanwhile, and the caller must not sleep. Meanwhile is since the caller asked
     * for it: what only another call has seen (that there is room, when released was asked) must
     * be told here. */
    bool (*arm)(void *transport);
    /* The caller is awake again; takes back `arm` and empties `fd` of wake-ups. */
    void (*disarm)(void *transport);

    /* ---- optional, all four or none: memory that the peer itself reads and writes ----
     *
     * The owner offers a range and tells its peer the place, in a message of its own. The peer maps
     * it, reads and writes, unmaps, and says so in another message. Loads and stores are ordered by
     * those messages as by any other. */

    /* Describe [data, data + bytes) of own memory so that this peer can map it. False: it cannot,
     * and *place is untouched. Does not block. */
    bool (*offer)(void *endpoint, const void *data, size_t bytes, struct tutti_place *place);
    /* Where the range that the peer has so described is readable and writable here, until `unmap`.
     * Does not block. May give PEER (it has withdrawn or is gone), PROTOCOL (no such place),
     * MEMORY, SYSTEM. */
    enum tutti_result (*map)(void *endpoint, const struct tutti_place *place, size_t bytes,
                             void **address);
    /* Nothing that was mapped over this endpoint is touched any more from here on. */
    void (*unmap)(void *endpoint);
    /* After a failure: once this has returned OK, no store of the peer to what was offered over
     * this endpoint shows here any more, whenever it runs, and its `map` fails. (What was offered
     * before our last but one turn at offering, mapping and unmapping need not be looked at: the
     * caller begins a turn when the peer is through with the one before.) Blocks until the
     * peer has unmapped, at most `wait_ms`; a peer that has not by then (stopped, say) is cut off
     * if the transport has the means: the memory keeps its address and contents, but is no longer
     * shared with whoever had mapped it. Other threads must not write to the same allocation
     * meanwhile. May give TIMEOUT (no means), MEMORY, SYSTEM. */
    enum tutti_result (*withdraw)(void *endpoint, int wait_ms);

    /* ---- optional: telling ---- */

    /* Add what the transport and its endpoints hold to *memory. Control: see above. */
    void (*memory)(void *transport, struct tutti_memory *memory);

    /* ---- optional: waiting for one lane ---- */

    /* Look up to `turns` times, without a pause in between, whether peek has something to say; true
     * as soon as it has. Makes no system call. For callers that expect an answer within a fraction
     * of a microsecond. */
    bool (*await)(void *endpoint, int lane, unsigned turns);

    /* ---- optional: telling of the line ---- */

    /* Bits a second that this rank's way to other hosts carries in each direction, as the system
     * tells it; 0: not known. *way (not 0) is equal on ranks of a host that share that way. Goes
     * into the choice of algorithms. Control: see above. */
    double (*line)(void *transport, uint64_t *way);

    /* ---- optional: telling what is copied ---- */

    /* Fragments of at most so many bytes are copied when they are accepted: `released` counts them
     * at once (but for those that are lent). Asked when the endpoint is connected; the same from
     * then on. */
    size_t (*copies)(void *endpoint);

    /* ---- optional: memory that may be kept ---- */

    /* As send, for memory that the caller can do without until `released` counts it, because it
     * waits for the peer anyway, or other peers read it too: a transport that copies what it could
     * let the peer read in place, to give it back early, need not. One stream with `send`: the
     * order, `released` and errors are the same. */
    enum tutti_result (*lend)(void *endpoint, int lane, uint64_t tag, const void *data,
                              size_t bytes, size_t *accepted);

    /* ---- optional, all three or none: sending out of a GPU's memory ---- */

    /* Make device_send able to read this allocation, which overlaps with none that it can read
     * already. UNSUPPORTED, with a text that says why: it cannot, and the library copies to host
     * memory instead. May also give MEMORY, SYSTEM. This and device_forget come from any thread,
     * whatever other operations run meanwhile but close, and may block as long as registering
     * takes. */
    enum tutti_result (*device_register)(void *transport, const struct tutti_device_memory *memory);
    /* The allocation with this id is gone, or not wanted any more. */
    void (*device_forget)(void *transport, uint64_t id);
    /* As send, with data in a registered allocation. All that was to write them is done. */
    enum tutti_result (*device_send)(void *endpoint, int lane, uint64_t tag, const void *data,
                                     size_t bytes, size_t *accepted);

    /* ---- optional: telling what is read in place ---- */

    /* Not 0: as far as the system tells, what is lent is read by the peer in this process's memory,
     * where the peer says the same number; else it is copied on the way. Goes into the choice of
     * algorithms. Control: see above. */
    uint64_t (*reads)(void *transport);

    /* ---- optional: memory that a peer may take back ---- */

    /* What peek has shown may be the peer's own memory, and a peer that gives up takes that back,
     * also while it is read. So this is asked when the bytes were used, before consume and before
     * anything that was made of them is passed on: OK, they were what was sent. Hot. May give
     * PEER. */
    enum tutti_result (*intact)(void *endpoint, int lane);

    /* ---- optional: a peer that leaves what it was sent ---- */

    /* Asked now and then by who waits for `released`, which has no way to say it: OK, all that was
     * accepted may yet be counted there; PEER or LINK: some of it never will, as the peer has left
     * or the connection is lost. Hot. */
    enum tutti_result (*abandoned)(void *endpoint);
};

typedef const struct tutti_transport_ops *tutti_transport_entry(void);

#ifdef __cplusplus
}
#endif
#endif
