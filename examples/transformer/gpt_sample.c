/* Writing text (gpt_sample.h): the whole window is computed for each token; there is no cache. */
#include "examples/transformer/gpt_sample.h"

#include "examples/train/noise.h"
#include "examples/transformer/tokens.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int sample_draw(const float *logits, int width, double temperature, uint64_t *seed)
{
    double most = -INFINITY, sum = 0, at = 0;
    for (int v = 0; v < width; v++)
        most = fmax(most, (double)logits[v]);
    for (int v = 0; v < width; v++)
        sum += exp(((double)logits[v] - most) / temperature);
    const double drawn = noise_uniform(seed) * sum;
    for (int v = 0; v < width; v++) {
        at += exp(((double)logits[v] - most) / temperature);
        if (drawn < at)
            return v;
    }
    return width - 1;
}

static void sample_print(int token, int vocabulary)
{
    if (vocabulary != TOKENS_BYTES)
        printf("%d ", token);
    else
        putchar(isprint(token) || token == '\n' || token == '\t' ? token : '?');
}

int gpt_sample(struct gpt *g, struct trainer *t, const char *prompt, int count, double temperature,
               uint64_t seed, bool loud)
{
    const int width = g->config.vocabulary, most = g->config.context;
    const size_t given = width == TOKENS_BYTES ? strlen(prompt) : 0;
    uint16_t *tokens = calloc(given + (size_t)count + 1, sizeof *tokens);
    float *logits = calloc((size_t)width, sizeof *logits);
    if (!tokens || !logits) {
        fprintf(stderr, "no memory for a sample of %d tokens\n", count);
        free(tokens);
        free(logits);
        return 1;
    }
    int used = given > 0 ? (int)given : 1;
    for (size_t i = 0; i < given; i++)
        tokens[i] = (unsigned char)prompt[i];
    if (width == TOKENS_GPT2)
        tokens[0] = TOKENS_GPT2 - 1; /* the end of a text, and so the beginning of one */
    for (int i = 0; i < used && loud; i++)
        sample_print(tokens[i], width);
    int failed = 0;
    for (int i = 0; i < count && !failed; i++, used++) {
        const int length = used < most ? used : most;
        failed = gpt_forward(g, t, tokens + used - length, 1, length) ||
                 gpt_logits(g, t, length - 1, logits);
        tokens[used] = (uint16_t)sample_draw(logits, width, temperature, &seed);
        if (loud && !failed)
            sample_print(tokens[used], width);
    }
    if (loud)
        putchar('\n');
    free(tokens);
    free(logits);
    return failed;
}
