/* The graph as JSON, out and in.
 *
 *   {"format": "tutti-topology 1", "source": "...",
 *    "nodes": [{"kind": "host", "parent": -1, "os_index": 0, "level": 0, "bytes": 0, "name": ""},
 * ...], "links": [{"kind": "pci", "from": 7, "to": 3, "gbs": 64, "latency_us": 0}, ...]}
 *
 * Of a node `kind` and `parent` must be there, of a link `kind`, `from` and `to`; the writer leaves
 * out what is none or unknown. The reader takes members in any order and refuses everything else:
 * see base/json_read.h. */
#include "base/json_read.h"
#include "topology/graph.h"

#include <stdio.h>
#include <string.h>

static const char json_format[] = "tutti-topology 1";

/* ---- Out ------------------------------------------------------------------------------------- */

static void json_number(FILE *out, const char *name, double value)
{
    fprintf(out, ", \"%s\": ", name);
    tti_json_write_number(out, value);
}

enum tutti_result tti_topology_write_json(const struct tti_topology *topology, FILE *out)
{
    fprintf(out, "{\n\"format\": \"%s\",\n\"source\": ", json_format);
    tti_json_write_text(out, topology->source);
    fprintf(out, ",\n\"nodes\": [");
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
        if (node->reduces)
            fprintf(out, ", \"reduces\": 1");
        if (node->staged)
            fprintf(out, ", \"staged\": 1");
        if (*node->name)
            fprintf(out, ", \"name\": \"%s\"", node->name);
        putc('}', out);
    }
    fprintf(out, "\n],\n\"links\": [");
    for (size_t i = 0; i < topology->link_count; i++) {
        const struct tti_graph_link *link = &topology->links[i];
        fprintf(out, "%s\n  {\"kind\": \"%s\", \"from\": %d, \"to\": %d", i ? "," : "",
                tti_link_kind_name(link->kind), link->from, link->to);
        if (link->gbs > 0)
            json_number(out, "gbs", link->gbs);
        if (link->latency_us > 0)
            json_number(out, "latency_us", link->latency_us);
        if (link->measured)
            fprintf(out, ", \"measured\": 1");
        putc('}', out);
    }
    fprintf(out, "\n]\n}\n");
    if (fflush(out) != 0 || ferror(out))
        return TTI_FAIL_ERRNO("cannot write the machine as JSON");
    return TUTTI_OK;
}

/* ---- In -------------------------------------------------------------------------------------- */

enum { JSON_TEXT_BYTES = 100 };

/* A text that `name` gives for one of the kinds 0 .. kinds - 1. */
static enum tutti_result json_kind(struct tti_json *json, const char *(*name)(int), int kinds,
                                   int *kind)
{
    char text[JSON_TEXT_BYTES];
    TTI_TRY(tti_json_text(json, text, sizeof text));
    for (int k = 0; k < kinds; k++)
        if (strcmp(name(k), text) == 0) {
            *kind = k;
            return TUTTI_OK;
        }
    return tti_json_wrong(json, "no kind of node or link that is known");
}

static const char *json_node_name(int kind)
{
    return tti_node_kind_name((enum tti_node_kind)kind);
}

static const char *json_link_name(int kind)
{
    return tti_link_kind_name((enum tti_link_kind)kind);
}

static enum tutti_result json_node(struct tti_json *json, void *topology)
{
    static const char *const names[] = {"kind", "parent",  "os_index", "level", "bytes",
                                        "name", "reduces", "staged",   NULL};
    struct tti_node node = {0};
    double value[8] = {0, 0, -1, 0, 0};
    unsigned seen = 0;
    int kind = 0;
    TTI_TRY(tti_json_expect(json, '{'));
    do {
        int member = 0;
        TTI_TRY(tti_json_member(json, names, &seen, &member));
        if (member == 0)
            TTI_TRY(json_kind(json, json_node_name, TTI_NODE_KINDS, &kind));
        else if (member == 5)
            TTI_TRY(tti_json_text(json, node.name, sizeof node.name));
        else
            TTI_TRY(tti_json_integer(json, member < 3 ? -1 : 0,
                                     member == 3   ? 5
                                     : member == 4 ? 0x1p53
                                     : member > 5  ? 1
                                                   : INT32_MAX,
                                     &value[member]));
    } while (tti_json_takes(json, ','));
    TTI_TRY(tti_json_expect(json, '}'));
    if ((seen & 3) != 3)
        return tti_json_wrong(json, "a node without kind or parent");
    node.kind = (enum tti_node_kind)kind;
    node.parent = (int)value[1];
    node.os_index = (int)value[2];
    node.level = (int)value[3];
    node.bytes = (uint64_t)value[4];
    node.reduces = value[6] > 0;
    node.staged = value[7] > 0;
    if ((node.kind == TTI_NODE_CACHE) != (node.level > 0))
        return tti_json_wrong(json, "a cache without a level, or a level of something else");
    return tti_json_where(json, tti_topology_add(topology, &node, NULL));
}

static enum tutti_result json_link(struct tti_json *json, void *topology)
{
    static const char *const names[] = {"kind",       "from",     "to", "gbs",
                                        "latency_us", "measured", NULL};
    double value[6] = {0};
    unsigned seen = 0;
    int kind = 0;
    TTI_TRY(tti_json_expect(json, '{'));
    do {
        int member = 0;
        TTI_TRY(tti_json_member(json, names, &seen, &member));
        if (member == 0)
            TTI_TRY(json_kind(json, json_link_name, TTI_LINK_KINDS, &kind));
        else if (member < 3)
            TTI_TRY(tti_json_integer(json, 0, INT32_MAX, &value[member]));
        else if (member == 5)
            TTI_TRY(tti_json_integer(json, 0, 1, &value[member]));
        else
            TTI_TRY(tti_json_number(json, &value[member]));
    } while (tti_json_takes(json, ','));
    TTI_TRY(tti_json_expect(json, '}'));
    if ((seen & 7) != 7)
        return tti_json_wrong(json, "a link without kind, from or to");
    struct tti_graph_link link = {.kind = (enum tti_link_kind)kind,
                                  .from = (int)value[1],
                                  .to = (int)value[2],
                                  .gbs = value[3],
                                  .latency_us = value[4],
                                  .measured = value[5] > 0};
    return tti_json_where(json, tti_topology_link(topology, &link));
}

static enum tutti_result json_machine(struct tti_json *json, struct tti_topology *topology)
{
    static const char *const names[] = {"format", "source", "nodes", "links", NULL};
    char text[JSON_TEXT_BYTES];
    unsigned seen = 0;
    TTI_TRY(tti_json_expect(json, '{'));
    do {
        int member = 0;
        TTI_TRY(tti_json_member(json, names, &seen, &member));
        if (member == 0) {
            TTI_TRY(tti_json_text(json, text, sizeof text));
            if (strcmp(text, json_format) != 0)
                return tti_json_wrong(json, "\"format\" is not \"tutti-topology 1\"");
        } else if (member == 1) {
            TTI_TRY(tti_json_text(json, topology->source, sizeof topology->source));
        } else if (member == 2) {
            TTI_TRY(tti_json_list(json, json_node, topology));
        } else if (!(seen & 4)) {
            return tti_json_wrong(json, "\"links\" before \"nodes\"");
        } else {
            TTI_TRY(tti_json_list(json, json_link, topology));
        }
    } while (tti_json_takes(json, ','));
    TTI_TRY(tti_json_expect(json, '}'));
    if ((seen & 5) != 5)
        return tti_json_wrong(json, "\"format\" or \"nodes\" is missing");
    return tti_json_end(json);
}

enum tutti_result tti_topology_from_json(const char *text, size_t bytes,
                                         struct tti_topology **topology)
{
    struct tti_json json = tti_json_of(text, bytes, "the JSON of a machine");
    struct tti_topology *made = NULL;
    TTI_TRY(tti_topology_create("JSON", &made));
    enum tutti_result result = json_machine(&json, made);
    if (result != TUTTI_OK) {
        tti_topology_destroy(made);
        return result;
    }
    *topology = made;
    return TUTTI_OK;
}
