/* What this machine, or one described on the command line, is made of and can carry. Compile
 * against an installed Tutti:
 *     cc show_machine.c $(pkg-config --cflags --libs tutti) -o show_machine
 *     ./show_machine "2 hosts x 8 gpus, nvlink 450, 8 nics 50" */
#include <stdio.h>
#include <tutti/topology.h>

static int check(enum tutti_result result)
{
    if (result != TUTTI_OK)
        fprintf(stderr, "show_machine: %s: %s\n", tutti_result_text(result), tutti_last_error());
    return result == TUTTI_OK;
}

static int show_gpus(const tutti_topology *machine)
{
    char name[80], nic_name[80], why[80];
    int ok = 1;
    for (int gpu = 0; ok && gpu < tutti_topology_count(machine, TUTTI_PART_GPU); gpu++) {
        int nic = -1;
        ok = check(tutti_topology_name(machine, TUTTI_PART_GPU, gpu, name, sizeof name)) &&
             check(tutti_topology_nearest_nic(machine, gpu, &nic, why, sizeof why));
        if (ok && nic >= 0) {
            ok =
                check(tutti_topology_name(machine, TUTTI_PART_NIC, nic, nic_name, sizeof nic_name));
            printf("%s sends by %s: %s\n", name, nic_name, why);
        }
    }
    return ok;
}

/* The first ring, from stop 0 on, and what all of them carry. */
static int show_rings(const tutti_topology *machine)
{
    struct tutti_paths *rings = NULL;
    double busbw = 0;
    char why[2048];
    if (!check(tutti_topology_rings(machine, &rings)))
        return 0;
    printf("%d rings of %g GB/s; the first: 0", rings->count, rings->gbs);
    for (int at = rings->next[0]; at != 0; at = rings->next[at])
        printf(" %d", at);
    printf("\n");
    tutti_paths_destroy(rings);
    if (!check(tutti_topology_predict(machine, &busbw, why, sizeof why)))
        return 0;
    printf("all-reduce: %.0f GB/s of bus bandwidth expected\n%s", busbw, why);
    return 1;
}

int main(int argc, char **argv)
{
    tutti_topology *machine = NULL;
    if (!check(argc > 1 ? tutti_topology_from_text(argv[1], &machine)
                        : tutti_topology_probe(&machine)))
        return 1;
    int ok = check(tutti_topology_print(machine, stdout)) && show_gpus(machine);
    int stops = tutti_topology_count(machine, TUTTI_PART_GPU);
    if (stops == 0)
        stops = tutti_topology_count(machine, TUTTI_PART_HOST);
    if (ok && stops > 1)
        ok = show_rings(machine);
    tutti_topology_destroy(machine);
    return ok ? 0 : 1;
}
