/* Started by any launcher: finds its place, meets the others, and prints one line
 *     rank 1 of 3 launcher mpich local 1 of 3 ok
 * `--twice` meets a second time, for programs that make two communicators. */
#include "base/clock.h"
#include "launch/environment.h"

#include <stdio.h>
#include <string.h>

static int place_fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tutti_last_error());
    return 1;
}

static int place_meet(void)
{
    struct tti_place place;
    struct tti_boot *boot = NULL;
    int all[64];
    if (tti_place_find(tti_deadline_in(100), &place) != TUTTI_OK)
        return place_fail("place");
    if (tti_boot_create(&place.meeting, place.rank, place.size, tti_deadline_in(100), &boot) !=
        TUTTI_OK)
        return place_fail("boot");
    int mine = 100 + place.rank;
    enum tutti_result result =
        tti_boot_all_gather(boot, &mine, sizeof mine, all, tti_deadline_in(100));
    tti_boot_destroy(boot, 5);
    if (result != TUTTI_OK)
        return place_fail("gather");
    for (int k = 0; k < place.size; k++)
        if (all[k] != 100 + k)
            return place_fail("wrong data");
    printf("rank %d of %d launcher %s local %d of %d ok\n", place.rank, place.size, place.launcher,
           place.local_rank, place.local_size);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = place_meet();
    if (!failed && argc > 1 && strcmp(argv[1], "--twice") == 0)
        failed = place_meet();
    return failed;
}
