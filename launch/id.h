/* The text forms of meetings and secrets, for the other files of this room. */
#ifndef TTI_LAUNCH_ID_H
#define TTI_LAUNCH_ID_H

#include "launch/boot.h"

/* `length` hexadecimal digits; ARGUMENT, naming `what` but not the value. */
enum tutti_result tti_secret_parse(const char *what, const char *text, size_t length,
                                   uint8_t secret[static TTI_SECRET_BYTES]);

/* Host, port and secret as an id, and back (ports 1, listen_fd -1). */
void tti_id_format(const struct tti_meeting *meeting, struct tutti_id *id);
enum tutti_result tti_id_parse(const struct tutti_id *id, struct tti_meeting *meeting);

#endif
