/* For threads that nobody waits for: the library that their code is in. */
#ifndef TTI_BASE_STAY_LOADED_H
#define TTI_BASE_STAY_LOADED_H

/* The library of this code stays in the process whatever the program unloads. To be called before
 * a detached thread begins. */
void tti_stay_loaded(void);

#endif
