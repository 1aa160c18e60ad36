/* What PyTorch computes for a small transformer (make_gpt_reference.py wrote it), and how far the
 * example's is from it, wherever that computes: for test_gpt.c and test_gpt_device.c. Functions
 * return 1 when something is wrong. */
#ifndef TESTS_EXAMPLES_GPT_REFERENCE_H
#define TESTS_EXAMPLES_GPT_REFERENCE_H

#include "examples/transformer/gpt.h"

enum { LAYERS = 2, HEADS = 2, CHANNELS = 8, CONTEXT = 70, VOCABULARY = 40, BATCH = 4, ROWS = 20 };
enum { TOKENS = BATCH * CONTEXT, TENSORS = GPT_FIRST + LAYERS * GPT_PER_LAYER + 2 };
enum { MOST = 4096 }; /* elements of a tensor */

extern const struct gpt_config reference_config;

struct reference {
    const char *path;
    const char *name; /* of what computes, for lines of output */
    tutti_tensor_file *file;
    struct train_gpu side; /* zeros: the CPU computes */
    struct gpt model;
    struct trainer trainer;
    uint16_t inputs[TOKENS], targets[TOKENS];
};

/* Open `path`, and read what goes into the model; close the file. */
int reference_open(struct reference *r);
void reference_close(struct reference *r);
/* A trainer with the file's weights, and without sharding; `model` is made. */
int reference_start(struct reference *r, tutti_comm *comm, bool thin);
void reference_stop(struct reference *r);

/* The mean loss of the whole batch. */
int reference_loss(struct reference *r, double *loss);
/* ... and the logits of its first and last rows, which may be so far from PyTorch's. */
int reference_forward(struct reference *r, double loss_bound, double logits_bound);
/* A step's passes, in `parts` small batches. */
int reference_backward(struct reference *r, int parts);
/* The same; its gradients, of all tensors, which may be so far from PyTorch's, as a share of each
 * tensor's largest element. */
int reference_gradients(struct reference *r, int parts, double bound, float (*ours)[MOST]);
/* Gradients as they are now. */
int reference_copy(struct reference *r, float (*out)[MOST]);

#endif
