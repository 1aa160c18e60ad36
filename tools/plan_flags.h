/* Command-line flags of tutti-plan as tables: one table parses and explains itself. */
#ifndef TTI_TOOLS_PLAN_FLAGS_H
#define TTI_TOOLS_PLAN_FLAGS_H

#include "base/error.h"
#include "plan/simulate.h"

#include <stdbool.h>
#include <stddef.h>

enum plan_flag_kind {
    FLAG_SWITCH,     /* bool; takes no value */
    FLAG_INT,        /* int, least .. most */
    FLAG_BYTES,      /* size_t; 8, 64K, 4M */
    FLAG_RATE,       /* double, GB/s; stored as seconds per byte */
    FLAG_LINK,       /* struct tti_link_model; "latency us,GB/s" */
    FLAG_TEXT,       /* const char * */
    FLAG_COLLECTIVE, /* enum tutti_collective */
    FLAG_TYPE,       /* enum tutti_type; nccl-tests' names or our own */
};

struct plan_flag {
    const char *name;  /* "--ranks" */
    const char *other; /* "-n", or NULL */
    enum plan_flag_kind kind;
    void *value;
    long least, most;    /* FLAG_INT */
    const char *meaning; /* one line for --help, defaults included */
};

/* Parse argv[0 .. argc). `*help` is set when --help or -h was among them. TUTTI_ERR_ARGUMENT with a
 * text that names the flag. */
enum tutti_result plan_flags_parse(const struct plan_flag *flags, size_t count, int argc,
                                   char **argv, bool *help);
/* The table for --help, on stdout. */
void plan_flags_explain(const struct plan_flag *flags, size_t count);

/* nccl-tests' name of a type: "float", "half", ... */
const char *plan_type_name(enum tutti_type type);

#endif
