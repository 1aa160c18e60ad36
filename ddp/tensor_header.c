/* Reading the header of a safetensors file (tensor_header.h).
 *
 * The texts come from other programs, so they may have any JSON escape and any UTF-8; the rest of
 * the grammar is what base/json_read.h takes. Nothing nests deeper than the format does. */
#include "ddp/tensor_header.h"

#include "base/json_read.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static const char *const header_types[] = {[TUTTI_INT8] = "I8",
                                           [TUTTI_UINT8] = "U8",
                                           [TUTTI_INT32] = "I32",
                                           [TUTTI_UINT32] = "U32",
                                           [TUTTI_INT64] = "I64",
                                           [TUTTI_UINT64] = "U64",
                                           [TUTTI_FLOAT16] = "F16",
                                           [TUTTI_FLOAT32] = "F32",
                                           [TUTTI_FLOAT64] = "F64",
                                           [TUTTI_BFLOAT16] = "BF16",
                                           [TUTTI_FLOAT8_E4M3] = "F8_E4M3",
                                           [TUTTI_FLOAT8_E5M2] = "F8_E5M2",
                                           "BOOL",
                                           "I16",
                                           "U16",
                                           NULL};
static const size_t header_other_sizes[] = {1, 2, 2};

struct reader {
    struct tti_json json;
    struct tti_tensor_header *header;
    struct tti_tensor_entry *entry; /* the one being read */
    size_t text_used;
    int numbers; /* of its data_offsets */
};

/* ---- Texts ------------------------------------------------------------------------------------
 */

static bool header_hex(const struct tti_json *json, uint32_t *value)
{
    if (json->end - json->at < 4)
        return false;
    *value = 0;
    for (int i = 0; i < 4; i++) {
        const char c = json->at[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return false;
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

static size_t header_utf8(uint32_t point, char out[4])
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    const size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length - 1; i > 0; i--, point >>= 6)
        out[i] = (char)(0x80 | (point & 0x3f));
    out[0] = (char)(marks[length] | point);
    return length;
}

/* After "\u": one or two units of UTF-16. */
static enum tutti_result header_unicode(struct tti_json *json, char out[4], size_t *length)
{
    uint32_t point = 0, low = 0;
    if (!header_hex(json, &point))
        return tti_json_wrong(json, "\\u without four hexadecimal digits");
    json->at += 4;
    if (point >= 0xd800 && point < 0xdc00 && json->end - json->at > 2 && json->at[0] == '\\' &&
        json->at[1] == 'u') {
        json->at += 2;
        if (!header_hex(json, &low) || low < 0xdc00 || low > 0xdfff)
            return tti_json_wrong(json, "half a UTF-16 pair");
        json->at += 4;
        point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    } else if (point >= 0xd800 && point <= 0xdfff) {
        return tti_json_wrong(json, "half a UTF-16 pair");
    }
    if (point < ' ')
        return tti_json_wrong(json, "a text with a control character");
    *length = header_utf8(point, out);
    return TUTTI_OK;
}

/* After a backslash. */
static enum tutti_result header_escape(struct tti_json *json, char out[4], size_t *length)
{
    if (json->at == json->end)
        return tti_json_wrong(json, "a text without end");
    const char c = *json->at++;
    if (c == 'u')
        return header_unicode(json, out, length);
    if (c != '"' && c != '\\' && c != '/')
        return tti_json_wrong(json, "a text with a control character or unknown escape");
    out[0] = c;
    *length = 1;
    return TUTTI_OK;
}

/* A text into the header's store, which is as long as the JSON: no text is longer than its source.
 */
static enum tutti_result header_text(struct reader *r, const char **text)
{
    struct tti_json *json = &r->json;
    char *start = r->header->texts + r->text_used, *to = start;
    TTI_TRY(tti_json_expect(json, '"'));
    while (json->at < json->end && *json->at != '"') {
        size_t length = 1;
        char decoded[4] = {*json->at++};
        if (decoded[0] == '\\')
            TTI_TRY(header_escape(json, decoded, &length));
        else if ((unsigned char)decoded[0] < ' ')
            return tti_json_wrong(json, "a text with a control character");
        memcpy(to, decoded, length);
        to += length;
    }
    if (json->at == json->end)
        return tti_json_wrong(json, "a text without end");
    json->at++;
    *to++ = '\0';
    r->text_used += (size_t)(to - start);
    *text = start;
    return TUTTI_OK;
}

/* ---- Tensors ----------------------------------------------------------------------------------
 */

static enum tutti_result header_dimension(struct tti_json *json, void *context)
{
    struct tutti_tensor *tensor = context;
    double size = 0;
    TTI_TRY(tti_json_integer(json, 0, 9007199254740992.0, &size));
    if (tensor->dims == TUTTI_TENSOR_DIMS)
        return tti_json_wrong(json, "a tensor has more than 8 dimensions");
    tensor->shape[tensor->dims++] = (size_t)size;
    return TUTTI_OK;
}

static enum tutti_result header_offset(struct tti_json *json, void *context)
{
    struct reader *r = context;
    double at = 0;
    TTI_TRY(tti_json_integer(json, 0, 9007199254740992.0, &at));
    if (r->numbers == 2)
        return tti_json_wrong(json, "data_offsets has more than two numbers");
    if (r->numbers++ == 0)
        r->entry->begin = (uint64_t)at;
    else
        r->entry->end = (uint64_t)at;
    return TUTTI_OK;
}

static enum tutti_result header_fits(struct reader *r)
{
    const struct tti_tensor_entry *e = r->entry;
    uint64_t bytes = e->element;
    bool fits = true;
    for (int d = 0; d < e->tensor.dims; d++)
        fits = fits && !__builtin_mul_overflow(bytes, e->tensor.shape[d], &bytes);
    if (fits && e->begin <= e->end && e->end - e->begin == bytes)
        return TUTTI_OK;
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "%s: tensor \"%s\" has data_offsets [%llu, %llu], which do not fit its shape "
                    "and type",
                    r->json.what, e->tensor.name, (unsigned long long)e->begin,
                    (unsigned long long)e->end);
}

static enum tutti_result header_tensor(struct reader *r, const char *name)
{
    static const char *const members[] = {"dtype", "shape", "data_offsets", NULL};
    struct tti_tensor_header *h = r->header;
    unsigned seen = 0;
    TTI_TRY(tti_grow((void **)&h->entries, &h->capacity, h->count + 1, sizeof *h->entries));
    r->entry = &h->entries[h->count++];
    r->entry->tensor.name = name;
    r->numbers = 0;
    TTI_TRY(tti_json_expect(&r->json, '{'));
    do {
        int member = 0, type = 0;
        TTI_TRY(tti_json_member(&r->json, members, &seen, &member));
        if (member == 0) {
            TTI_TRY(tti_json_one_of(&r->json, header_types, &type));
            const bool known = type < TUTTI_TYPE_COUNT;
            r->entry->tensor.type = known ? (enum tutti_type)type : TUTTI_TYPE_COUNT;
            r->entry->element = known ? tutti_type_size((enum tutti_type)type)
                                      : header_other_sizes[type - TUTTI_TYPE_COUNT];
        } else if (member == 1) {
            TTI_TRY(tti_json_list(&r->json, header_dimension, &r->entry->tensor));
        } else {
            TTI_TRY(tti_json_list(&r->json, header_offset, r));
        }
    } while (tti_json_takes(&r->json, ','));
    TTI_TRY(tti_json_expect(&r->json, '}'));
    if (seen != 7 || r->numbers != 2)
        return tti_json_wrong(&r->json, "a tensor needs dtype, shape and two data_offsets");
    return header_fits(r);
}

static enum tutti_result header_metadata(struct reader *r)
{
    struct tti_tensor_header *h = r->header;
    TTI_TRY(tti_json_expect(&r->json, '{'));
    if (tti_json_takes(&r->json, '}'))
        return TUTTI_OK;
    do {
        TTI_TRY(
            tti_grow((void **)&h->pairs, &h->pair_capacity, h->pair_count + 1, sizeof *h->pairs));
        struct tutti_pair *pair = &h->pairs[h->pair_count];
        TTI_TRY(header_text(r, &pair->key));
        TTI_TRY(tti_json_expect(&r->json, ':'));
        TTI_TRY(header_text(r, &pair->value));
        h->pair_count++;
    } while (tti_json_takes(&r->json, ','));
    return tti_json_expect(&r->json, '}');
}

/* ---- All together -----------------------------------------------------------------------------
 */

static int header_by_place(const void *left, const void *right)
{
    const struct tti_tensor_entry *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return strcmp(a->tensor.name, b->tensor.name);
}

static int header_by_name(const void *left, const void *right)
{
    struct tti_tensor_entry *const *a = left, *const *b = right;
    return strcmp((*a)->tensor.name, (*b)->tensor.name);
}

static enum tutti_result header_arrange(struct tti_tensor_header *h, uint64_t data_bytes,
                                        const char *what)
{
    uint64_t at = 0;
    h->by_name = tti_calloc(h->count, sizeof(struct tti_tensor_entry *));
    if (!h->by_name)
        return TUTTI_ERR_MEMORY;
    if (h->count > 0)
        qsort(h->entries, h->count, sizeof *h->entries, header_by_place);
    for (size_t i = 0; i < h->count; at = h->entries[i++].end) {
        h->by_name[i] = &h->entries[i];
        if (h->entries[i].begin != at)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: tensor \"%s\" begins at byte %llu, not %llu",
                            what, h->entries[i].tensor.name,
                            (unsigned long long)h->entries[i].begin, (unsigned long long)at);
    }
    if (at != data_bytes)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s has %llu bytes of tensors, its header says %llu: the file is torn or "
                        "was not written to its end",
                        what, (unsigned long long)data_bytes, (unsigned long long)at);
    if (h->count > 0)
        qsort(h->by_name, h->count, sizeof(struct tti_tensor_entry *), header_by_name);
    for (size_t i = 1; i < h->count; i++)
        if (header_by_name(&h->by_name[i - 1], &h->by_name[i]) == 0)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: tensor \"%s\" is there twice", what,
                            h->by_name[i]->tensor.name);
    return TUTTI_OK;
}

static enum tutti_result header_read(struct reader *r, uint64_t data_bytes)
{
    bool metadata = false;
    TTI_TRY(tti_json_expect(&r->json, '{'));
    if (!tti_json_takes(&r->json, '}')) {
        do {
            const char *name = "";
            TTI_TRY(header_text(r, &name));
            TTI_TRY(tti_json_expect(&r->json, ':'));
            if (strcmp(name, "__metadata__") != 0) {
                TTI_TRY(header_tensor(r, name));
                continue;
            }
            if (metadata)
                return tti_json_wrong(&r->json, "__metadata__ is there twice");
            metadata = true;
            TTI_TRY(header_metadata(r));
        } while (tti_json_takes(&r->json, ','));
        TTI_TRY(tti_json_expect(&r->json, '}'));
    }
    TTI_TRY(tti_json_end(&r->json));
    return header_arrange(r->header, data_bytes, r->json.what);
}

enum tutti_result tti_tensor_header_parse(const char *json, size_t bytes, uint64_t data_bytes,
                                          const char *what, struct tti_tensor_header **header)
{
    struct reader r = {.json = tti_json_of(json, bytes, what)};
    r.header = tti_calloc(1, sizeof *r.header);
    if (!r.header)
        return TUTTI_ERR_MEMORY;
    r.header->texts = tti_calloc(bytes + 1, 1);
    enum tutti_result result = r.header->texts ? header_read(&r, data_bytes) : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK)
        *header = r.header;
    else
        tti_tensor_header_free(r.header);
    return result;
}

void tti_tensor_header_free(struct tti_tensor_header *h)
{
    if (!h)
        return;
    free(h->entries);
    free(h->by_name);
    free(h->pairs);
    free(h->texts);
    free(h);
}

const struct tti_tensor_entry *tti_tensor_header_find(const struct tti_tensor_header *h,
                                                      const char *name)
{
    struct tti_tensor_entry wanted = {.tensor.name = name};
    struct tti_tensor_entry *key = &wanted;
    struct tti_tensor_entry **found =
        h->count > 0
            ? bsearch(&key, h->by_name, h->count, sizeof(struct tti_tensor_entry *), header_by_name)
            : NULL;
    return found ? *found : NULL;
}

/* ---- Writing ----------------------------------------------------------------------------------
 */

static bool header_can_write(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ')
            return false;
    return true;
}

static void header_write_text(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putc('\\', out);
        putc(*text, out);
    }
    putc('"', out);
}

static enum tutti_result header_check(const struct tutti_tensor *t)
{
    if (!t->name || !header_can_write(t->name) || strcmp(t->name, "__metadata__") == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "a tensor cannot be named \"%s\"",
                        t->name ? t->name : "(NULL)");
    if (tutti_type_size(t->type) == 0 || t->dims < 0 || t->dims > TUTTI_TENSOR_DIMS)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tensor \"%s\" has an unknown type or %d dimensions",
                        t->name, t->dims);
    return TUTTI_OK;
}

static void header_put_metadata(FILE *out, const struct tutti_pair *pairs, size_t pair_count)
{
    fputs("\"__metadata__\":{", out);
    for (size_t i = 0; i < pair_count; i++) {
        if (i > 0)
            putc(',', out);
        header_write_text(out, pairs[i].key);
        putc(':', out);
        header_write_text(out, pairs[i].value);
    }
    putc('}', out);
}

static void header_put_tensor(FILE *out, const struct tutti_tensor *t, uint64_t *at)
{
    const uint64_t end = *at + tutti_tensor_elements(t) * tutti_type_size(t->type);
    header_write_text(out, t->name);
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", header_types[t->type]);
    for (int d = 0; d < t->dims; d++)
        fprintf(out, "%s%zu", d ? "," : "", t->shape[d]);
    fprintf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)*at,
            (unsigned long long)end);
    *at = end;
}

enum tutti_result tti_tensor_header_write(const struct tutti_tensor *tensors, size_t count,
                                          const struct tutti_pair *pairs, size_t pair_count,
                                          char **text, size_t *bytes)
{
    char *made = NULL;
    size_t used = 0;
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++)
        TTI_TRY(header_check(&tensors[i]));
    for (size_t i = 0; i < pair_count; i++)
        if (!header_can_write(pairs[i].key) || !header_can_write(pairs[i].value))
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "metadata with a control character");
    FILE *out = open_memstream(&made, &used);
    if (!out)
        return TTI_FAIL_ERRNO("cannot make a stream in memory");
    fwrite("\0\0\0\0\0\0\0\0{", 1, TTI_TENSOR_LENGTH_BYTES + 1, out);
    if (pair_count > 0)
        header_put_metadata(out, pairs, pair_count);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 || pair_count > 0)
            putc(',', out);
        header_put_tensor(out, &tensors[i], &at);
    }
    putc('}', out);
    while (ftell(out) % 8 != 0) /* the elements begin aligned */
        putc(' ', out);
    const bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(made);
        return TTI_FAIL(TUTTI_ERR_MEMORY, "cannot allocate the header of %zu tensors", count);
    }
    const uint64_t length = used - TTI_TENSOR_LENGTH_BYTES;
    for (int i = 0; i < TTI_TENSOR_LENGTH_BYTES; i++)
        made[i] = (char)(length >> 8 * i & 0xff);
    *text = made;
    *bytes = used;
    return TUTTI_OK;
}
