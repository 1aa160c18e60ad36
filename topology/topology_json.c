/* The graph as JSON, out and in.
 *
 *   {"format": "tutti-topology 1", "source": "...",
 *    "nodes": [{"kind": "host", "parent": -1, "os_index": 0, "level": 0, "bytes": 0, "name": ""},
 * ...], "links": [{"kind": "pci", "from": 7, "to": 3, "gbs": 64, "latency_us": 0}, ...]}
 *
 * Of a node `kind` and `parent` must be there, of a link `kind`, `from` and `to`; the writer leaves
 * out what is none or unknown. The reader takes members in any order and refuses everything else:
 * other members, members twice, escapes in strings (no name of ours needs one). */
#include "topology/topology.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char json_format[] = "tutti-topology 1";

/* ---- Out ------------------------------------------------------------------------------------- */

/* The shortest text that reads back as the same number. */
static void json_number(FILE *out, const char *name, double value)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fprintf(out, ", \"%s\": %s", name, text);
}

enum tutti_result tti_topology_write_json(const struct tti_topology *topology, FILE *out)
{
    fprintf(out, "{\n\"format\": \"%s\",\n\"source\": \"", json_format);
    for (const char *at = topology->source; *at; at++)
        putc(*at < ' ' || *at > '~' || *at == '"' || *at == '\\' ? '_' : *at, out);
    fprintf(out, "\",\n\"nodes\": [");
    for (size_t i = 0; i < topology->node_count; i++) {
        const struct tti_node *node = &topology->nodes[i];
        fprintf(out, "%s\n  {\"kind\": \"%s\", \"parent\": %d", i ? "," : "",
                tti_node_kind_name(node->kind), node->parent);
        if (node->os_index >= 0)
            fprintf(out, ", \"os_index\": %d", node->os_index);
        if (node->level)
            fprintf(out, ", \"level\": %d", node->level);
        if (node->bytes)
            fprintf(out, ", \"bytes\": %llu", (unsigned long long)node->bytes);
        if (*node->name)
            fprintf(out, ", \"name\": \"%s\"", node->name);
        putc('}', out);
    }
    fprintf(out, "\n],\n\"links\": [");
    for (size_t i = 0; i < topology->link_count; i++) {
        const struct tti_link *link = &topology->links[i];
        fprintf(out, "%s\n  {\"kind\": \"%s\", \"from\": %d, \"to\": %d", i ? "," : "",
                tti_link_kind_name(link->kind), link->from, link->to);
        if (link->gbs > 0)
            json_number(out, "gbs", link->gbs);
        if (link->latency_us > 0)
            json_number(out, "latency_us", link->latency_us);
        putc('}', out);
    }
    fprintf(out, "\n]\n}\n");
    if (fflush(out) != 0 || ferror(out))
        return TTI_FAIL_ERRNO("cannot write the machine as JSON");
    return TUTTI_OK;
}

/* ---- In -------------------------------------------------------------------------------------- */

enum { JSON_TEXT_BYTES = 100 };

struct json {
    const char *start, *at, *end;
    struct tti_topology *topology;
};

static int json_line(const struct json *json)
{
    int line = 1;
    for (const char *at = json->start; at < json->at; at++)
        line += *at == '\n';
    return line;
}

static enum tutti_result json_wrong(const struct json *json, const char *what)
{
    return TTI_FAIL(TUTTI_ERR_ARGUMENT, "line %d of the JSON of a machine: %s", json_line(json),
                    what);
}

/* Adding what was read failed: say where it stands. */
static enum tutti_result json_where(const struct json *json, enum tutti_result result)
{
    return result == TUTTI_OK
               ? result
               : TTI_CONTEXT(result, "line %d of the JSON of a machine", json_line(json));
}

static char json_peek(struct json *json)
{
    while (json->at < json->end && *json->at && strchr(" \t\r\n", *json->at))
        json->at++;
    return json->at < json->end ? *json->at : '\0';
}

static bool json_takes(struct json *json, char wanted)
{
    if (json_peek(json) != wanted)
        return false;
    json->at++;
    return true;
}

static enum tutti_result json_expect(struct json *json, char wanted)
{
    char what[32];
    if (json_takes(json, wanted))
        return TUTTI_OK;
    snprintf(what, sizeof what, "'%c' expected", wanted);
    return json_wrong(json, what);
}

static enum tutti_result json_text(struct json *json, char *text, size_t bytes)
{
    size_t used = 0;
    TTI_TRY(json_expect(json, '"'));
    while (json->at < json->end && *json->at != '"') {
        char c = *json->at++;
        if (c < ' ' || c > '~' || c == '\\')
            return json_wrong(json, "a text with other than plain ASCII characters");
        if (used + 1 >= bytes)
            return json_wrong(json, "a text is too long");
        text[used++] = c;
    }
    text[used] = '\0';
    return json_expect(json, '"');
}

static enum tutti_result json_value(struct json *json, double *value)
{
    char text[40];
    char *end = text;
    size_t length = 0;
    (void)json_peek(json);
    while (json->at + length < json->end && json->at[length] &&
           strchr("+-.0123456789eE", json->at[length]) && length < sizeof text - 1) {
        text[length] = json->at[length];
        length++;
    }
    text[length] = '\0';
    double parsed = strtod(text, &end);
    if (length == 0 || *end || !isfinite(parsed))
        return json_wrong(json, "a number is expected");
    json->at += length;
    *value = parsed;
    return TUTTI_OK;
}

/* A member's place in the list of those that an object may have. */
static enum tutti_result json_member(struct json *json, const char *const *names, unsigned *seen,
                                     int *member)
{
    char name[JSON_TEXT_BYTES];
    TTI_TRY(json_text(json, name, sizeof name));
    TTI_TRY(json_expect(json, ':'));
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0) {
            if (*seen & 1U << i)
                return json_wrong(json, "a member is there twice");
            *seen |= 1U << i;
            *member = i;
            return TUTTI_OK;
        }
    return json_wrong(json, "a member that no machine has");
}

static enum tutti_result json_integer(struct json *json, double least, double most, double *value)
{
    double parsed = 0;
    TTI_TRY(json_value(json, &parsed));
    if (parsed < least || parsed > most || parsed != floor(parsed))
        return json_wrong(json, "a whole number is out of range");
    *value = parsed;
    return TUTTI_OK;
}

static enum tutti_result json_kind(struct json *json, const char *(*name)(int), int kinds,
                                   int *kind)
{
    char text[JSON_TEXT_BYTES];
    TTI_TRY(json_text(json, text, sizeof text));
    for (int k = 0; k < kinds; k++)
        if (strcmp(name(k), text) == 0) {
            *kind = k;
            return TUTTI_OK;
        }
    return json_wrong(json, "no kind of node or link that is known");
}

static const char *json_node_name(int kind)
{
    return tti_node_kind_name((enum tti_node_kind)kind);
}

static const char *json_link_name(int kind)
{
    return tti_link_kind_name((enum tti_link_kind)kind);
}

static enum tutti_result json_node(struct json *json)
{
    static const char *const names[] = {"kind",  "parent", "os_index", "level",
                                        "bytes", "name",   NULL};
    struct tti_node node = {0};
    double value[5] = {0, 0, -1, 0, 0};
    unsigned seen = 0;
    int kind = 0;
    TTI_TRY(json_expect(json, '{'));
    do {
        int member = 0;
        TTI_TRY(json_member(json, names, &seen, &member));
        if (member == 0)
            TTI_TRY(json_kind(json, json_node_name, TTI_NODE_KINDS, &kind));
        else if (member == 5)
            TTI_TRY(json_text(json, node.name, sizeof node.name));
        else
            TTI_TRY(json_integer(json, member < 3 ? -1 : 0,
                                 member == 3   ? 5
                                 : member == 4 ? 0x1p53
                                               : INT32_MAX,
                                 &value[member]));
    } while (json_takes(json, ','));
    TTI_TRY(json_expect(json, '}'));
    if ((seen & 3) != 3)
        return json_wrong(json, "a node without kind or parent");
    node.kind = (enum tti_node_kind)kind;
    node.parent = (int)value[1];
    node.os_index = (int)value[2];
    node.level = (int)value[3];
    node.bytes = (uint64_t)value[4];
    if ((node.kind == TTI_NODE_CACHE) != (node.level > 0))
        return json_wrong(json, "a cache without a level, or a level of something else");
    return json_where(json, tti_topology_add(json->topology, &node, NULL));
}

static enum tutti_result json_link(struct json *json)
{
    static const char *const names[] = {"kind", "from", "to", "gbs", "latency_us", NULL};
    double value[5] = {0};
    unsigned seen = 0;
    int kind = 0;
    TTI_TRY(json_expect(json, '{'));
    do {
        int member = 0;
        TTI_TRY(json_member(json, names, &seen, &member));
        if (member == 0)
            TTI_TRY(json_kind(json, json_link_name, TTI_LINK_KINDS, &kind));
        else if (member < 3)
            TTI_TRY(json_integer(json, 0, INT32_MAX, &value[member]));
        else
            TTI_TRY(json_value(json, &value[member]));
    } while (json_takes(json, ','));
    TTI_TRY(json_expect(json, '}'));
    if ((seen & 7) != 7)
        return json_wrong(json, "a link without kind, from or to");
    struct tti_link link = {.kind = (enum tti_link_kind)kind,
                            .from = (int)value[1],
                            .to = (int)value[2],
                            .gbs = value[3],
                            .latency_us = value[4]};
    return json_where(json, tti_topology_link(json->topology, &link));
}

static enum tutti_result json_list(struct json *json, enum tutti_result (*element)(struct json *))
{
    TTI_TRY(json_expect(json, '['));
    if (json_takes(json, ']'))
        return TUTTI_OK;
    do
        TTI_TRY(element(json));
    while (json_takes(json, ','));
    return json_expect(json, ']');
}

static enum tutti_result json_machine(struct json *json)
{
    static const char *const names[] = {"format", "source", "nodes", "links", NULL};
    char text[JSON_TEXT_BYTES];
    unsigned seen = 0;
    TTI_TRY(json_expect(json, '{'));
    do {
        int member = 0;
        TTI_TRY(json_member(json, names, &seen, &member));
        if (member == 0) {
            TTI_TRY(json_text(json, text, sizeof text));
            if (strcmp(text, json_format) != 0)
                return json_wrong(json, "\"format\" is not \"tutti-topology 1\"");
        } else if (member == 1) {
            TTI_TRY(json_text(json, json->topology->source, sizeof json->topology->source));
        } else if (member == 2) {
            TTI_TRY(json_list(json, json_node));
        } else if (!(seen & 4)) {
            return json_wrong(json, "\"links\" before \"nodes\"");
        } else {
            TTI_TRY(json_list(json, json_link));
        }
    } while (json_takes(json, ','));
    TTI_TRY(json_expect(json, '}'));
    if ((seen & 5) != 5)
        return json_wrong(json, "\"format\" or \"nodes\" is missing");
    (void)json_peek(json);
    return json->at == json->end ? TUTTI_OK : json_wrong(json, "text after the end");
}

enum tutti_result tti_topology_from_json(const char *text, size_t bytes,
                                         struct tti_topology **topology)
{
    struct json json = {.start = text, .at = text, .end = text + bytes};
    TTI_TRY(tti_topology_create("JSON", &json.topology));
    enum tutti_result result = json_machine(&json);
    if (result != TUTTI_OK) {
        tti_topology_destroy(json.topology);
        return result;
    }
    *topology = json.topology;
    return TUTTI_OK;
}
