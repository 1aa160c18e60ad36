/* Text as numbers: the bytes of any files, or llm.c's token shards (256 32-bit numbers of which the
 * first are 20240520, 1 and the count, then 16-bit tokens of GPT-2's vocabulary). */
#ifndef EXAMPLES_TRANSFORMER_TOKENS_H
#define EXAMPLES_TRANSFORMER_TOKENS_H

#include <stddef.h>
#include <stdint.h>

enum { TOKENS_BYTES = 256, TOKENS_GPT2 = 50257 };

struct tokens {
    uint16_t *list;
    size_t count;
    int vocabulary; /* 256, or 50257 */
};

/* `paths`: files or patterns of the shell ('shards/train_*.bin'), several with commas between, one
 * after another. 0, or 1 after a message. */
int tokens_read(struct tokens *tokens, const char *paths);
void tokens_free(struct tokens *tokens);

#endif
