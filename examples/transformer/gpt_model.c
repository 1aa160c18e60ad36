/* What the transformer consists of: sizes, names of its tensors, memory, first values (gpt.h). */
#include "examples/train/noise.h"
#include "examples/train/together.h"
#include "examples/transformer/gpt.h"
#include "examples/transformer/gpt_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gpt_size(const char *name, struct gpt_config *config)
{
    static const struct {
        const char *name;
        struct gpt_config config; /* the vocabulary is the data's */
    } sizes[] = {
        {"tiny", {4, 4, 128, 128, 0}},           {"small", {6, 6, 384, 256, 0}},
        {"gpt2", {12, 12, 768, 1024, 0}},        {"gpt2-medium", {24, 16, 1024, 1024, 0}},
        {"gpt2-large", {36, 20, 1280, 1024, 0}}, {"gpt2-xl", {48, 25, 1600, 1024, 0}},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(sizes[i].name, name) == 0) {
            *config = sizes[i].config;
            return 0;
        }
    fprintf(stderr, "--size %s: expected tiny, small, gpt2, gpt2-medium, gpt2-large or gpt2-xl\n",
            name);
    return 1;
}

/* ---- Tensors ----------------------------------------------------------------------------------
 */

size_t gpt_tensor_count(const struct gpt_config *config)
{
    return gpt_last_norm(config) + 2;
}

size_t gpt_index(int layer, enum gpt_tensor which)
{
    return GPT_FIRST + (size_t)layer * GPT_PER_LAYER + (size_t)which;
}

size_t gpt_last_norm(const struct gpt_config *config)
{
    return GPT_FIRST + (size_t)config->layers * GPT_PER_LAYER;
}

static void model_tensor(struct trainer_tensor *t, size_t rows, size_t columns)
{
    t->dims = columns ? 2 : 1;
    t->shape[0] = rows;
    t->shape[1] = columns;
    t->decays = columns != 0; /* matrices only */
}

void gpt_tensors(const struct gpt_config *config, struct trainer_tensor *tensors)
{
    static const char *const names[GPT_PER_LAYER] = {
        "ln_1.weight",        "ln_1.bias",        "attn.c_attn.weight", "attn.c_attn.bias",
        "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight",        "ln_2.bias",
        "mlp.c_fc.weight",    "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};
    /* In channels; columns 0: a vector. */
    static const int shapes[GPT_PER_LAYER][2] = {{1, 0}, {1, 0}, {1, 3}, {3, 0}, {1, 1}, {1, 0},
                                                 {1, 0}, {1, 0}, {1, 4}, {4, 0}, {4, 1}, {1, 0}};
    const size_t c = (size_t)config->channels, last = gpt_last_norm(config);
    memset(tensors, 0, gpt_tensor_count(config) * sizeof *tensors);
    model_tensor(&tensors[GPT_WTE], (size_t)config->vocabulary, c);
    model_tensor(&tensors[GPT_WPE], (size_t)config->context, c);
    model_tensor(&tensors[last], c, 0);
    model_tensor(&tensors[last + 1], c, 0);
    tensors[last].unit = tensors[last + 1].unit = config->layers + 1;
    snprintf(tensors[GPT_WTE].name, sizeof tensors->name, "wte.weight");
    snprintf(tensors[GPT_WPE].name, sizeof tensors->name, "wpe.weight");
    snprintf(tensors[last].name, sizeof tensors->name, "ln_f.weight");
    snprintf(tensors[last + 1].name, sizeof tensors->name, "ln_f.bias");
    for (int l = 0; l < config->layers; l++)
        for (int i = 0; i < GPT_PER_LAYER; i++) {
            struct trainer_tensor *t = &tensors[gpt_index(l, (enum gpt_tensor)i)];
            model_tensor(t, (size_t)shapes[i][0] * c, (size_t)shapes[i][1] * c);
            t->unit = 1 + l;
            snprintf(t->name, sizeof t->name, "h.%d.%s", l, names[i]);
        }
}

/* ---- Memory -----------------------------------------------------------------------------------
 */

/* Deals out *memory, or only counts where that is NULL. */
static float *model_take(float *memory, size_t *used, size_t count)
{
    float *taken = memory ? memory + *used : NULL;
    *used += (count + 15) / 16 * 16; /* whole cache lines */
    return taken;
}

static size_t model_arrange(struct gpt *g, float *memory)
{
    const size_t n = (size_t)g->rows, c = (size_t)g->config.channels;
    const size_t block = (size_t)GPT_BLOCK * (size_t)g->config.context;
    size_t used = 0;
    for (int l = 0; l <= g->config.layers; l++) {
        struct gpt_layer *y = &g->layers[l];
        y->input = model_take(memory, &used, n * c);
        if (l == g->config.layers)
            break;
        if (l > 0 && g->recompute) {
            float *input = y->input;
            *y = g->layers[0];
            y->input = input;
            continue;
        }
        y->middle = model_take(memory, &used, n * c);
        y->norm1 = model_take(memory, &used, n * c);
        y->norm2 = model_take(memory, &used, n * c);
        y->attention = model_take(memory, &used, n * c);
        y->qkv = model_take(memory, &used, n * 3 * c);
        y->fc = model_take(memory, &used, n * 4 * c);
        y->gelu = model_take(memory, &used, n * 4 * c);
        y->mean1 = model_take(memory, &used, n);
        y->scale1 = model_take(memory, &used, n);
        y->mean2 = model_take(memory, &used, n);
        y->scale2 = model_take(memory, &used, n);
    }
    g->normf = model_take(memory, &used, n * c);
    g->meanf = model_take(memory, &used, n);
    g->scalef = model_take(memory, &used, n);
    g->logits = model_take(memory, &used, (size_t)GPT_CHUNK * (size_t)g->config.vocabulary);
    g->scores = model_take(memory, &used, block);
    g->slopes = model_take(memory, &used, block);
    g->dx = model_take(memory, &used, n * c);
    g->da = model_take(memory, &used, n * c);
    g->dwide = model_take(memory, &used, n * 4 * c);
    g->dqkv = model_take(memory, &used, n * 3 * c);
    return used;
}

int gpt_create(struct gpt *g, const struct gpt_config *config, int rows, bool recompute)
{
    *g = (struct gpt){.config = *config, .rows = rows, .recompute = recompute};
    if (config->channels % config->heads != 0) {
        fprintf(stderr, "%d channels cannot be shared among %d heads\n", config->channels,
                config->heads);
        return 1;
    }
    g->layers = calloc((size_t)config->layers + 1, sizeof *g->layers);
    const size_t count = g->layers ? model_arrange(g, NULL) : 0;
    g->memory = count ? calloc(count, sizeof *g->memory) : NULL;
    if (!g->memory) {
        fprintf(stderr, "no memory for %d tokens at once (%.1f GiB)\n", rows,
                (double)count * sizeof(float) / (1 << 30));
        gpt_destroy(g);
        return 1;
    }
    g->memory_bytes = count * sizeof *g->memory;
    model_arrange(g, g->memory);
    return 0;
}

int gpt_create_on(struct gpt *g, const struct gpt_config *config, int rows, const struct gpt_on *on)
{
    *g = (struct gpt){.config = *config, .rows = rows, .recompute = on->recompute};
    if (gpt_device_create(config, rows, on, &g->device))
        return 1;
    g->memory_bytes = g->device->memory_bytes;
    return 0;
}

void gpt_destroy(struct gpt *g)
{
    gpt_device_destroy(g->device);
    free(g->layers);
    free(g->memory);
    *g = (struct gpt){0};
}

/* ---- First values -----------------------------------------------------------------------------
 */

static void model_first(const struct gpt *g, size_t index, uint64_t *seed, float *values,
                        size_t count)
{
    const size_t last = gpt_last_norm(&g->config);
    const size_t which = (index - GPT_FIRST) % GPT_PER_LAYER;
    const bool matrix = index < GPT_FIRST ||
                        (index < last && (which == GPT_QKV_WEIGHT || which == GPT_PROJ_WEIGHT ||
                                          which == GPT_FC_WEIGHT || which == GPT_OUT_WEIGHT));
    const bool norm = index == last || (index >= GPT_FIRST && index < last &&
                                        (which == GPT_NORM1_WEIGHT || which == GPT_NORM2_WEIGHT));
    if (matrix) {
        const bool writes =
            index >= GPT_FIRST && (which == GPT_PROJ_WEIGHT || which == GPT_OUT_WEIGHT);
        const float deviation = writes ? 0.02f / sqrtf(2.0f * (float)g->config.layers) : 0.02f;
        noise_normal(seed, deviation, values, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        values[i] = norm ? 1.0f : 0.0f;
}

int gpt_initialise(const struct gpt *g, struct trainer *t, uint64_t seed)
{
    for (size_t i = 0; i < t->count; i++) {
        const size_t count = trainer_elements(&t->tensors[i]);
        float *values = malloc(count * sizeof *values);
        if (!values) {
            fprintf(stderr, "no memory for %s\n", t->tensors[i].name);
            return 1;
        }
        model_first(g, i, &seed, values, count);
        const int failed = trainer_set(t, i, values);
        free(values);
        if (failed)
            return 1;
    }
    return 0;
}

static int model_load_one(struct trainer *t, size_t index, const tutti_tensor_file *file,
                          const char *path)
{
    const struct trainer_tensor *wanted = &t->tensors[index];
    char longer[64];
    snprintf(longer, sizeof longer, "transformer.%s", wanted->name);
    const struct tutti_tensor *found = tutti_tensors_find(file, wanted->name);
    if (!found)
        found = tutti_tensors_find(file, longer);
    if (!found) {
        fprintf(stderr, "%s has no tensor %s\n", path, wanted->name);
        return 1;
    }
    const size_t count = trainer_elements(wanted);
    if (found->dims != wanted->dims || found->shape[0] != wanted->shape[0] ||
        (wanted->dims == 2 && found->shape[1] != wanted->shape[1])) {
        fprintf(stderr, "%s: %s is [%zu, %zu], and [%zu, %zu] in this model; see --size\n", path,
                found->name, found->shape[0], found->shape[1], wanted->shape[0], wanted->shape[1]);
        return 1;
    }
    float *values = malloc(count * sizeof *values);
    int failed =
        !values ||
        together_check(t->comm, tutti_tensors_read(file, found, 0, count, TUTTI_FLOAT32, values),
                       path) ||
        trainer_set(t, index, values);
    free(values);
    return failed;
}

int gpt_load(const struct gpt *g, struct trainer *t, const char *path)
{
    tutti_tensor_file *file = NULL;
    (void)g;
    int failed = together_check(t->comm, tutti_tensors_open(path, &file), "weights");
    for (size_t i = 0; i < t->count && !failed; i++)
        failed = model_load_one(t, i, file, path);
    tutti_tensors_close(file);
    return failed;
}
