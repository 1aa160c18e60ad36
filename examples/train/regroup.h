/* A run that goes on when ranks die, and takes in new ones. The dead are left out by
 * tutti_comm_shrink. Newcomers and the run meet in a folder that both see: who wants to join leaves
 * a file there ("knock-HOST-PID"), rank 0 sees it between two steps and answers with an id, and all
 * make a new communicator with it. What ranks compute with must be given to the new ones then:
 * trainer_move.
 *
 * Functions return 0, or 1 after a message on stderr. */
#ifndef EXAMPLES_TRAIN_REGROUP_H
#define EXAMPLES_TRAIN_REGROUP_H

#include "tutti/tutti.h"

/* After a failure: a communicator of those that live; collective over them. 1 if nobody is known to
 * have died: then something else is wrong. */
int regroup_shrink(tutti_comm *comm, tutti_comm **fewer);

/* Rank 0: how many knock. The files of those that have died since are removed. */
int regroup_knocks(const char *folder);
/* Let them in; collective. *more stays NULL if nobody came after all: go on as before. */
int regroup_admit(tutti_comm *comm, const char *folder, tutti_comm **more);
/* A newcomer: knock, and wait until the run answers, at most `seconds`. */
int regroup_join(const char *folder, double seconds, tutti_comm **comm);

#endif
