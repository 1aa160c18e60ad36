/* Writing text with the model. */
#ifndef EXAMPLES_TRANSFORMER_GPT_SAMPLE_H
#define EXAMPLES_TRANSFORMER_GPT_SAMPLE_H

#include "examples/transformer/gpt.h"

/* Print, if `loud`, `prompt` and `count` tokens after it, each drawn from softmax(logits /
 * temperature). Bytes as they are; GPT-2's tokens, whose text is not here, as numbers. Where
 * parameters are sharded all ranks do it, one of them loud. 0, or 1 after a message. */
int gpt_sample(struct gpt *g, struct trainer *t, const char *prompt, int count, double temperature,
               uint64_t seed, bool loud);

#endif
