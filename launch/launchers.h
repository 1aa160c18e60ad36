/* One function per launcher, for environment.c: fill in the place from its variables. `place`
 * arrives with the launcher's name, no local rank, and a meeting without a host. */
#ifndef TTI_LAUNCH_LAUNCHERS_H
#define TTI_LAUNCH_LAUNCHERS_H

#include "launch/environment.h"

/* slurm.c: a task of a job step (not a program that merely runs inside an allocation). */
bool tti_slurm_present(void);
enum tutti_result tti_slurm_find(uint64_t deadline, struct tti_place *place);
/* "node[08-11,20],gpu1" -> "node08". ARGUMENT when it is no host list. */
enum tutti_result tti_slurm_first_host(const char *list, char *host, size_t room);
/* "2(x3),1", node 3 -> 1. ARGUMENT when it is no such list, or too short. */
enum tutti_result tti_slurm_tasks_on(const char *list, int node, int *tasks);

/* pmix.c: Open MPI's mpirun, and any launcher with a PMIx server. */
bool tti_openmpi_present(void);
enum tutti_result tti_openmpi_find(uint64_t deadline, struct tti_place *place);
bool tti_pmix_present(void);
enum tutti_result tti_pmix_find(uint64_t deadline, struct tti_place *place);

/* pmi1.c: MPICH's mpiexec (Hydra) and its kin. */
bool tti_hydra_present(void);
enum tutti_result tti_hydra_find(uint64_t deadline, struct tti_place *place);
/* The value of `key` in a reply such as "cmd=get_result rc=0 value=abc"; false when it is not
 * there or does not fit. */
bool tti_pmi1_value(const char *line, size_t bytes, const char *key, char *value, size_t room);

/* Rank 0: make an id, on loopback when all ranks are here, and keep its socket for the meeting. */
enum tutti_result tti_place_make_id(struct tti_place *place, struct tutti_id *id);
/* The others: take the meeting from rank 0's text. */
enum tutti_result tti_place_take_id(struct tti_place *place, const char *text);

#endif
