/* Collectives whose blocks differ in size. Part of tutti/tutti.h, which brings it, and whose rules
 * hold here: host or device memory, blocking or with a stream or request, in groups or not.
 *
 * `counts` and `displs` are arrays of one entry a rank, read during the call and the caller's again
 * afterwards: block k has counts[k] elements, the first of them displs[k] elements from the
 * beginning of its buffer. displs NULL: the blocks follow each other. A count of 0 is legal, and
 * its block is touched by nobody; a rank without any elements may pass NULL for a buffer. Blocks
 * that are written must not overlap. What a rank gives another is as much as that one expects, or
 * both fail with TUTTI_ERR_MISMATCH; where one of the two counts is 0 the other rank waits until
 * its deadline.
 *
 * Errors, beside those of all collectives: ARGUMENT (counts is NULL, blocks overlap or end beyond
 * what memory can hold). */
#ifndef TUTTI_UNEVEN_H
#define TUTTI_UNEVEN_H

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `in` has counts[r] elements at rank r, `out` all blocks: out_r[displs[k]+i] = in_k[i]. The counts
 * are alike on all ranks, displs need not be. In place: in == out + displs[r]. */
TUTTI_API enum tutti_result tutti_all_gather_v(const void *in, void *out, const size_t *counts,
                                               const size_t *displs, enum tutti_type type,
                                               tutti_comm *comm);
TUTTI_API enum tutti_result tutti_all_gather_v_async(const void *in, void *out,
                                                     const size_t *counts, const size_t *displs,
                                                     enum tutti_type type, tutti_comm *comm,
                                                     tutti_stream stream, tutti_request **request);

/* `in` has all blocks, `out` counts[r] elements at rank r: out_r[i] = in_0[displs[r]+i] op ... The
 * counts are alike on all ranks, displs need not be. In place: out == in + displs[r]. */
TUTTI_API enum tutti_result tutti_reduce_scatter_v(const void *in, void *out, const size_t *counts,
                                                   const size_t *displs, enum tutti_type type,
                                                   enum tutti_op op, tutti_comm *comm);
TUTTI_API enum tutti_result tutti_reduce_scatter_v_async(const void *in, void *out,
                                                         const size_t *counts, const size_t *displs,
                                                         enum tutti_type type, enum tutti_op op,
                                                         tutti_comm *comm, tutti_stream stream,
                                                         tutti_request **request);

/* Block k of `in` goes to rank k, block k of `out` comes from there: in_counts[k] at rank r is
 * out_counts[r] at rank k. There is no in-place form: the buffers' blocks must not overlap. */
TUTTI_API enum tutti_result tutti_all_to_all_v(const void *in, const size_t *in_counts,
                                               const size_t *in_displs, void *out,
                                               const size_t *out_counts, const size_t *out_displs,
                                               enum tutti_type type, tutti_comm *comm);
TUTTI_API enum tutti_result tutti_all_to_all_v_async(const void *in, const size_t *in_counts,
                                                     const size_t *in_displs, void *out,
                                                     const size_t *out_counts,
                                                     const size_t *out_displs, enum tutti_type type,
                                                     tutti_comm *comm, tutti_stream stream,
                                                     tutti_request **request);

/* `in` has `count` elements; out_root[displs[k]+i] = in_k[i], where counts[k] is the count of rank
 * k. `out`, counts and displs are read at the root only. In place at the root: in == out +
 * displs[root]. */
TUTTI_API enum tutti_result tutti_gather_v(const void *in, size_t count, void *out,
                                           const size_t *counts, const size_t *displs,
                                           enum tutti_type type, int root, tutti_comm *comm);
TUTTI_API enum tutti_result tutti_gather_v_async(const void *in, size_t count, void *out,
                                                 const size_t *counts, const size_t *displs,
                                                 enum tutti_type type, int root, tutti_comm *comm,
                                                 tutti_stream stream, tutti_request **request);

/* `out` has `count` elements; out_r[i] = in_root[displs[r]+i], where counts[r] is the count of rank
 * r. `in`, counts and displs are read at the root only. In place at the root: out == in +
 * displs[root]. */
TUTTI_API enum tutti_result tutti_scatter_v(const void *in, const size_t *counts,
                                            const size_t *displs, void *out, size_t count,
                                            enum tutti_type type, int root, tutti_comm *comm);
TUTTI_API enum tutti_result tutti_scatter_v_async(const void *in, const size_t *counts,
                                                  const size_t *displs, void *out, size_t count,
                                                  enum tutti_type type, int root, tutti_comm *comm,
                                                  tutti_stream stream, tutti_request **request);

#ifdef __cplusplus
}
#endif

#endif
