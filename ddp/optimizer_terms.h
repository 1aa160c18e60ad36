/* What an optimizer's step works out before it goes over elements, on the host (optimizer.c) or on
 * a GPU (ddp_device.c). */
#ifndef TTI_DDP_OPTIMIZER_TERMS_H
#define TTI_DDP_OPTIMIZER_TERMS_H

#include "base/error.h"
#include "device/kernel_args.h"
#include "tutti/ddp.h"

/* TUTTI_ERR_ARGUMENT for settings, or a slice, that make no sense. */
enum tutti_result tti_optimizer_check(const struct tutti_optimizer *optimizer, uint64_t step,
                                      const struct tutti_optimizer_slice *slice);
/* The numbers of one step, worked out once in double. */
struct tti_train_terms tti_optimizer_terms(const struct tutti_optimizer *optimizer, uint64_t step,
                                           const struct tutti_optimizer_slice *slice);

#endif
