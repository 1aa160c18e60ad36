/* Fuzzes the reader of safetensors headers. What is accepted is sound (places within the data,
 * sizes that multiply), and written again it reads back as the same. */
#include "ddp/tensor_header.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check(const struct tti_tensor_header *h, uint64_t data_bytes)
{
    uint64_t at = 0;
    for (size_t i = 0; i < h->count; i++) {
        const struct tti_tensor_entry *e = &h->entries[i];
        require(e->begin == at && e->end >= at && e->end <= data_bytes);
        require(tutti_tensor_elements(&e->tensor) * e->element == e->end - e->begin);
        require(tti_tensor_header_find(h, e->tensor.name) == e);
        at = e->end;
    }
    require(at == data_bytes);
}

static void write_again(const struct tti_tensor_header *h, uint64_t data_bytes)
{
    struct tutti_tensor *tensors = calloc(h->count + 1, sizeof *tensors);
    struct tti_tensor_header *again = NULL;
    char *text = NULL;
    size_t bytes = 0;
    require(tensors != NULL);
    for (size_t i = 0; i < h->count; i++) {
        tensors[i] = h->entries[i].tensor;
        if (tensors[i].type == TUTTI_TYPE_COUNT) { /* cannot be written */
            free(tensors);
            return;
        }
    }
    require(tti_tensor_header_write(tensors, h->count, h->pairs, h->pair_count, &text, &bytes) ==
            TUTTI_OK);
    require(tti_tensor_header_parse(text + TTI_TENSOR_LENGTH_BYTES, bytes - TTI_TENSOR_LENGTH_BYTES,
                                    data_bytes, "again", &again) == TUTTI_OK);
    require(again->count == h->count && again->pair_count == h->pair_count);
    for (size_t i = 0; i < h->count; i++) {
        const struct tutti_tensor *a = &h->entries[i].tensor, *b = &again->entries[i].tensor;
        require(a->type == b->type && a->dims == b->dims && strcmp(a->name, b->name) == 0);
        require(memcmp(a->shape, b->shape, sizeof a->shape) == 0);
    }
    for (size_t i = 0; i < h->pair_count; i++)
        require(strcmp(h->pairs[i].key, again->pairs[i].key) == 0 &&
                strcmp(h->pairs[i].value, again->pairs[i].value) == 0);
    tti_tensor_header_free(again);
    free(text);
    free(tensors);
}

/* The input is a file: length, header, elements. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tti_tensor_header *header = NULL;
    uint64_t length = 0;
    if (bytes < TTI_TENSOR_LENGTH_BYTES)
        return 0;
    for (int i = TTI_TENSOR_LENGTH_BYTES; i-- > 0;)
        length = length << 8 | data[i];
    const size_t left = bytes - TTI_TENSOR_LENGTH_BYTES;
    if (length > left)
        return 0;
    if (tti_tensor_header_parse((const char *)data + TTI_TENSOR_LENGTH_BYTES, length, left - length,
                                "the input", &header) != TUTTI_OK) {
        require(!header && *tutti_last_error());
        return 0;
    }
    check(header, left - length);
    write_again(header, left - length);
    tti_tensor_header_free(header);
    return 0;
}
