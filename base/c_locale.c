/* See base/c_locale.h. Both C libraries of Linux have the C locale ready: newlocale takes no memory
 * for it, and so does not fail; where it did, the program's locale would stay. */
#include "base/c_locale.h"

#include <stdlib.h>

struct tti_c_locale tti_c_locale_enter(void)
{
    struct tti_c_locale locale;
    locale.c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale.before = uselocale(locale.c);
    return locale;
}

void tti_c_locale_leave(struct tti_c_locale locale)
{
    (void)uselocale(locale.before);
    if (locale.c)
        freelocale(locale.c);
}

double tti_c_strtod(const char *text, char **end)
{
    struct tti_c_locale locale = tti_c_locale_enter();
    double value = strtod(text, end);
    tti_c_locale_leave(locale);
    return value;
}
