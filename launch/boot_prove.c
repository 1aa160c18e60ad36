/* The caller's half of the handshake (launch/boot_prove.h). Who answers must prove that it knows
 * the job's secret before this rank proves anything. */
#include "launch/boot_prove.h"

#include "base/clock.h"
#include "launch/boot_socket.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

void tti_boot_waits(uint64_t begin, uint64_t deadline, struct tti_boot_frame *frame)
{
    uint64_t waited = (tti_now_ns() - begin) / 1000000u;
    frame->wait_ms = (uint32_t)tti_deadline_ms(deadline, INT32_MAX);
    frame->waited_ms = waited > INT32_MAX ? INT32_MAX : (uint32_t)waited;
}

enum tutti_result tti_boot_prove(const struct tti_boot_caller *caller, int fd, bool desk,
                                 uint64_t until, bool *foreign, uint32_t *host)
{
    struct tti_boot_frame frame = {.type = desk ? TTI_BOOT_SEEK : TTI_BOOT_HELLO,
                                   .rank = caller->rank,
                                   .bytes = TTI_BOOT_HELLO_BYTES};
    uint8_t hello[TTI_BOOT_HEADER_BYTES + TTI_BOOT_HELLO_BYTES];
    uint8_t *hello_body = hello + TTI_BOOT_HEADER_BYTES;
    uint8_t answer[TTI_BOOT_HEADER_BYTES + TTI_BOOT_CHALLENGE_BYTES];
    uint8_t nonce[TTI_BOOT_NONCE_BYTES];
    uint8_t proof[TTI_BOOT_HEADER_BYTES + TTI_BOOT_PROOF_BYTES];

    tti_boot_waits(caller->begin, caller->deadline, &frame);
    tti_boot_frame_encode(&frame, hello);
    randombytes_buf(nonce, sizeof nonce);
    tti_boot_hello_encode(nonce, caller->size, hello_body);
    if (tti_socket_send(fd, hello, sizeof hello, until) != 0 ||
        tti_socket_receive(fd, answer, sizeof answer, until) != 0)
        return TTI_FAIL(TUTTI_ERR_LINK, "no answer: %s", strerror(errno));
    if (tti_boot_frame_parse(answer, TTI_BOOT_TO_CLIENT, &frame) != TUTTI_OK ||
        frame.type != TTI_BOOT_CHALLENGE) {
        *foreign = true;
        return TTI_FAIL(TUTTI_ERR_LINK, "what listens there is not Tutti");
    }
    if (host)
        *host = frame.code;
    const uint8_t *theirs = answer + TTI_BOOT_HEADER_BYTES;
    tti_boot_proof(caller->secret, desk ? TTI_BOOT_DESK : TTI_BOOT_SERVER, caller->rank, hello_body,
                   theirs, proof);
    if (!tti_boot_proof_equal(proof, theirs + TTI_BOOT_NONCE_BYTES)) {
        *foreign = true;
        return TTI_FAIL(TUTTI_ERR_LINK, "the Tutti job that listens there has another secret");
    }
    frame = (struct tti_boot_frame){
        .type = TTI_BOOT_PROOF, .rank = caller->rank, .bytes = TTI_BOOT_PROOF_BYTES};
    tti_boot_frame_encode(&frame, proof);
    tti_boot_proof(caller->secret, desk ? TTI_BOOT_SEEKER : TTI_BOOT_RANK, caller->rank, hello_body,
                   theirs, proof + TTI_BOOT_HEADER_BYTES);
    if (tti_socket_send(fd, proof, sizeof proof, until) != 0)
        return TTI_FAIL(TUTTI_ERR_LINK, "connection lost: %s", strerror(errno));
    return TUTTI_OK;
}
