/* Experts, one a rank: each rank's tokens go to the experts that a router chose for them, which are
 * anybody's, and come back in their order. How many go where is known when the router has chosen,
 * so the ranks tell each other the counts first. Compile and run as hello.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

enum { TOKENS = 4096, WIDTH = 64, MOST_RANKS = 64 };

static int check(enum tutti_result result)
{
    if (result != TUTTI_OK)
        fprintf(stderr, "experts: %s: %s\n", tutti_result_text(result), tutti_last_error());
    return result == TUTTI_OK;
}

/* Any choice will do; this one prefers the first experts. */
static int choose_expert(int rank, int token, int experts)
{
    unsigned x = (unsigned)(rank * TOKENS + token) * 2654435761u >> 8;
    return (int)((x % 1000) * (x % 1000) / 1000 * (unsigned)experts / 1000);
}

/* Elements before each rank's, and in all. */
static size_t lay(const size_t *counts, size_t *displs, int size)
{
    size_t total = 0;
    for (int k = 0; k < size; k++) {
        displs[k] = total;
        total += counts[k];
    }
    return total;
}

/* In elements: what this rank gives to each, gets of each, and where they begin. */
struct traffic {
    size_t give[MOST_RANKS], get[MOST_RANKS], give_at[MOST_RANKS], get_at[MOST_RANKS];
};

/* There, through the expert, and back. `tokens` becomes the result, in its order. */
static int layer(float *tokens, struct traffic *t, tutti_comm *comm)
{
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    static int place[TOKENS]; /* in the order of experts */
    size_t next[MOST_RANKS];
    memset(t, 0, sizeof *t);
    for (int i = 0; i < TOKENS; i++)
        t->give[choose_expert(rank, i, size)] += WIDTH;
    if (!check(tutti_all_to_all(t->give, t->get, 1, TUTTI_UINT64, comm)))
        return 0;
    size_t gets = lay(t->get, t->get_at, size);
    lay(t->give, t->give_at, size);
    memcpy(next, t->give_at, sizeof next);
    float *sorted = malloc(sizeof(float) * TOKENS * WIDTH);
    float *visitors = malloc(sizeof(float) * (gets + 1));
    int ok = sorted && visitors;
    for (int i = 0; ok && i < TOKENS; i++) {
        size_t *at = &next[choose_expert(rank, i, size)];
        memcpy(sorted + *at, tokens + (size_t)i * WIDTH, sizeof(float) * WIDTH);
        place[i] = (int)*at;
        *at += WIDTH;
    }
    ok = ok && check(tutti_all_to_all_v(sorted, t->give, t->give_at, visitors, t->get, t->get_at,
                                        TUTTI_FLOAT32, comm));
    for (size_t i = 0; ok && i < gets; i++)
        visitors[i] *= (float)(rank + 1); /* what this expert knows */
    ok = ok && check(tutti_all_to_all_v(visitors, t->get, t->get_at, sorted, t->give, t->give_at,
                                        TUTTI_FLOAT32, comm));
    for (int i = 0; ok && i < TOKENS; i++)
        memcpy(tokens + (size_t)i * WIDTH, sorted + place[i], sizeof(float) * WIDTH);
    free(sorted);
    free(visitors);
    return ok;
}

int main(void)
{
    static float tokens[TOKENS * WIDTH];
    struct traffic traffic;
    tutti_comm *comm = NULL;
    if (!check(tutti_comm_create_from_env(NULL, &comm)))
        return 1;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm), ok = size <= MOST_RANKS;
    for (int i = 0; i < TOKENS * WIDTH; i++)
        tokens[i] = (float)(i % 1000);
    ok = ok && layer(tokens, &traffic, comm);
    for (int i = 0; ok && i < TOKENS * WIDTH; i++)
        ok = tokens[i] == (float)(i % 1000) * (float)(choose_expert(rank, i / WIDTH, size) + 1);
    size_t visited = 0;
    for (int k = 0; ok && k < size; k++)
        visited += traffic.get[k] / WIDTH;
    if (ok)
        printf("expert %d of %d: %zu tokens came, all %d of its own are back as expected\n", rank,
               size, visited, TOKENS);
    tutti_comm_destroy(comm);
    return ok ? 0 : 1;
}
