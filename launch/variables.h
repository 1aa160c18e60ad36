/* Reading launchers' variables: numbers, pairs, and the secret; every complaint names the variable
 * and its value (TUTTI_ERR_USAGE). */
#ifndef TTI_LAUNCH_VARIABLES_H
#define TTI_LAUNCH_VARIABLES_H

#include "launch/environment.h"

/* A number from least to most; `fallback` when the variable is unset or empty. */
enum tutti_result tti_variable_int(const char *name, long least, long most, int fallback,
                                   int *value);

/* A launcher's rank and size: both or neither. *present is false for neither. */
enum tutti_result tti_variable_pair(const char *rank_name, const char *size_name, bool *present,
                                    int *rank, int *size);

/* The same for the place on the host; -1 and -1 for neither, and either may be missing. */
enum tutti_result tti_variable_local(const char *rank_name, const char *size_name,
                                     struct tti_place *place);

/* USAGE when both are set and differ. */
enum tutti_result tti_variable_agree(const char *one, const char *other);

/* TUTTI_SECRET, or the contents of the file TUTTI_SECRET_FILE (mode 0600, own), or a hash of
 * `facts`: what all ranks of the job know, which keeps jobs apart and strangers not out. */
enum tutti_result tti_variable_secret(const char *facts, uint8_t secret[static TTI_SECRET_BYTES]);

/* A port of 16 in a row, out of a hash of `facts`: below the ephemeral range. */
uint16_t tti_port_from(const char *facts);

#endif
