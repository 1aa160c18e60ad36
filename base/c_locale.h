/* Numbers as the C locale writes them, with a point, whatever locale the program has set: for
 * settings, and for files that other programs and other locales read. Per thread; costs a few loads
 * and stores. */
#ifndef TTI_BASE_C_LOCALE_H
#define TTI_BASE_C_LOCALE_H

#include <locale.h>

struct tti_c_locale {
    locale_t c, before;
};

/* From here to the leaving this thread's printf and strtod are in the C locale. */
struct tti_c_locale tti_c_locale_enter(void);
void tti_c_locale_leave(struct tti_c_locale locale);

/* strtod in the C locale. */
double tti_c_strtod(const char *text, char **end);

#endif
