/* When something is wrong: have all ranks asked what they are doing, and let all know what that
 * makes together. Every deadline that passes and every call that does not match its peer's ends
 * here. Bounded, whoever is stopped; if it is rank 0, what this rank knows itself is all there is.
 */
#ifndef TTI_COLL_DIAGNOSE_H
#define TTI_COLL_DIAGNOSE_H

#include "base/error.h"

struct tutti_comm;

/* The communicator answers from here on. */
enum tutti_result tti_diagnose_start(struct tutti_comm *comm);

/* Have all ranks' calls on device memory laid side by side, without waiting for it: calls that
 * differ fail the communicator on all ranks. */
void tti_diagnose_look(struct tutti_comm *comm);

/* Fail the communicator with what all ranks' reports say; the calling thread's error text, of code
 * `code`, is what is known here. Returns the verdict's code. */
enum tutti_result tti_diagnose(struct tutti_comm *comm, enum tutti_result code);

#endif
