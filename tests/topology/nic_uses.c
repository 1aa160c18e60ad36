/* See nic_uses.h. */
#include "tests/topology/nic_uses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/described.h"
#include "tests/tutti_cmocka.h"

const char *nic_systems;
enum tti_nic_way nic_way = TTI_NIC_BY_ALL;
const char *const nic_one_each[8] = {"0", "1", "2", "3", "4", "5", "6", "7"};

/* Which of the first host's NICs: "nic 0", "nic ib0/mlx5_0", ... */
static void list(const struct tti_topology *topology, const bool *far, char *text, size_t room)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < tti_topology_end(topology, tti_first_host(topology)); i++) {
        char label[80];
        if (topology->nodes[i].kind != TTI_NODE_NIC || far[i])
            continue;
        (void)tti_topology_label(topology, i, label, sizeof label);
        used += (size_t)snprintf(text + used, room - used, "%s%s", used ? " " : "", label + 4);
    }
}

const char *nic_uses(const struct tti_topology *topology, const struct tti_nic_user *users,
                     int count, int me, const bool *usable)
{
    static char text[400];
    struct tti_nic_use use;
    size_t used = 0;
    bool *far = calloc(topology->node_count, sizeof *far);
    assert_non_null(far);
    assert_int_equal(tti_nics_far(topology, users, count, me, nic_way, usable, far, &use),
                     TUTTI_OK);
    list(topology, far, text, sizeof text);
    free(far);
    used = strlen(text);
    if (!use.chosen)
        snprintf(text + used, sizeof text - used, ", not told apart");
    return text;
}

void nic_check(struct tti_topology *topology, int ranks, const int *gpus, const char *const *wanted)
{
    struct tti_nic_user users[MOST_RANKS];
    for (int r = 0; r < ranks; r++)
        users[r] = (struct tti_nic_user){.gpu = tti_gpu_of_rank(topology, gpus ? gpus[r] : r)};
    for (int r = 0; r < ranks; r++)
        assert_string_equal(nic_uses(topology, users, ranks, r, NULL), wanted[r]);
    tti_topology_destroy(topology);
}

struct tti_topology *nic_known(const char *name)
{
    char path[500], line[200] = "";
    snprintf(path, sizeof path, "%s/%s", nic_systems, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return described(line);
}

void nic_set_rate(struct tti_topology *topology, int nic, double gbs)
{
    for (size_t i = 0; i < topology->link_count; i++)
        if (topology->links[i].kind == TTI_LINK_NETWORK &&
            topology->nodes[topology->links[i].from].os_index == nic)
            topology->links[i].gbs = gbs;
}
