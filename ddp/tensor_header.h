/* The header of a safetensors file, as text and as data. Apart from the file (tensor_file.c), so
 * that it can be fuzzed. */
#ifndef TTI_DDP_TENSOR_HEADER_H
#define TTI_DDP_TENSOR_HEADER_H

#include "base/error.h"
#include "tutti/ddp.h"

#include <stddef.h>
#include <stdint.h>

enum {
    TTI_TENSOR_LENGTH_BYTES = 8,            /* before the header: its length */
    TTI_TENSOR_HEADER_BYTES = 100 * 1000000 /* the format's own limit */
};

struct tti_tensor_entry {
    struct tutti_tensor tensor;
    uint64_t begin, end; /* bytes after the header */
    size_t element;      /* bytes */
};

struct tti_tensor_header {
    struct tti_tensor_entry *entries; /* in the order of their bytes */
    size_t count, capacity;
    struct tti_tensor_entry **by_name;
    struct tutti_pair *pairs;
    size_t pair_count, pair_capacity;
    char *texts; /* all names and texts */
};

/* Parse `bytes` of JSON that `data_bytes` of elements follow. What is accepted has tensors with
 * different names that fill these bytes without gap or overlap, each as its shape and type say.
 * Free with tti_tensor_header_free (also of NULL). `what` names the file in messages. */
enum tutti_result tti_tensor_header_parse(const char *json, size_t bytes, uint64_t data_bytes,
                                          const char *what, struct tti_tensor_header **header);
void tti_tensor_header_free(struct tti_tensor_header *header);
const struct tti_tensor_entry *tti_tensor_header_find(const struct tti_tensor_header *header,
                                                      const char *name);

/* The header of tensors that lie one after another, its length included; free(3) it. */
enum tutti_result tti_tensor_header_write(const struct tutti_tensor *tensors, size_t count,
                                          const struct tutti_pair *pairs, size_t pair_count,
                                          char **text, size_t *bytes);

#endif
