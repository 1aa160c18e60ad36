/* Launchers' variables (launch/variables.h). */
#include "launch/variables.h"

#include "base/config.h"
#include "launch/boot_wire.h"
#include "launch/id.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum tutti_result tti_variable_int(const char *name, long least, long most, int fallback,
                                   int *value)
{
    long number = 0;
    if (tti_config_int(name, least, most, fallback, &number) != TUTTI_OK)
        return TTI_FAIL(TUTTI_ERR_USAGE, "%s", tti_error_text());
    *value = (int)number;
    return TUTTI_OK;
}

enum tutti_result tti_variable_pair(const char *rank_name, const char *size_name, bool *present,
                                    int *rank, int *size)
{
    const char *rank_text = tti_config_text(rank_name);
    const char *size_text = tti_config_text(size_name);
    int found_rank = 0;
    int found_size = 1;
    *present = false;
    if (!rank_text && !size_text)
        return TUTTI_OK;
    if (!rank_text || !size_text)
        return TTI_FAIL(TUTTI_ERR_USAGE, "%s is \"%s\" but %s is not set; set both or neither",
                        rank_text ? rank_name : size_name, rank_text ? rank_text : size_text,
                        rank_text ? size_name : rank_name);
    TTI_TRY(tti_variable_int(size_name, 1, TTI_BOOT_RANKS, 1, &found_size));
    TTI_TRY(tti_variable_int(rank_name, 0, TTI_BOOT_RANKS - 1, 0, &found_rank));
    if (found_rank >= found_size)
        return TTI_FAIL(TUTTI_ERR_USAGE, "%s is %d but %s is %d; a rank is less than the size",
                        rank_name, found_rank, size_name, found_size);
    *present = true;
    *rank = found_rank;
    *size = found_size;
    return TUTTI_OK;
}

enum tutti_result tti_variable_local(const char *rank_name, const char *size_name,
                                     struct tti_place *place)
{
    int rank = -1;
    int size = -1;
    TTI_TRY(tti_variable_int(rank_name, 0, TTI_BOOT_RANKS - 1, -1, &rank));
    if (size_name)
        TTI_TRY(tti_variable_int(size_name, 1, TTI_BOOT_RANKS, -1, &size));
    if (size >= 0 && rank >= size)
        return TTI_FAIL(TUTTI_ERR_USAGE, "%s is %d but %s is %d; a rank is less than the size",
                        rank_name, rank, size_name, size);
    if (size > place->size)
        return TTI_FAIL(TUTTI_ERR_USAGE, "%s is %d, more than the %d ranks of the job", size_name,
                        size, place->size);
    place->local_rank = rank;
    place->local_size = size;
    return TUTTI_OK;
}

enum tutti_result tti_variable_agree(const char *one, const char *other)
{
    const char *a = tti_config_text(one);
    const char *b = tti_config_text(other);
    if (a && b && strcmp(a, b) != 0)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "%s is %s but %s is %s; unset those of the launcher that did not start "
                        "this process",
                        one, a, other, b);
    return TUTTI_OK;
}

/* The first line of a file that only we can read. */
static enum tutti_result variable_file(const char *path, char *text, size_t room)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return TTI_FAIL_ERRNO("cannot open TUTTI_SECRET_FILE %s", path);
    bool stated = fstat(fd, &status) == 0;
    ssize_t got = stated && S_ISREG(status.st_mode) ? read(fd, text, room - 1) : 0;
    int saved = errno;
    close(fd);
    if (!stated || got < 0) {
        errno = saved;
        return TTI_FAIL_ERRNO("cannot read TUTTI_SECRET_FILE %s", path);
    }
    /* Each rank reads it, some more than once; a pipe gives what it has to one. */
    if (!S_ISREG(status.st_mode))
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "TUTTI_SECRET_FILE %s is no regular file, which every rank can read for "
                        "itself; put the secret into one, or into TUTTI_SECRET",
                        path);
    if ((status.st_mode & 077) || status.st_uid != geteuid())
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "TUTTI_SECRET_FILE %s has mode %03o and owner %u; it must be yours alone "
                        "(chmod 600)",
                        path, (unsigned)(status.st_mode & 0777), (unsigned)status.st_uid);
    text[got] = '\0';
    text[strcspn(text, " \r\n")] = '\0';
    return TUTTI_OK;
}

static void variable_hash(const char *purpose, const char *facts, uint8_t *out, size_t bytes)
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, bytes);
    crypto_generichash_update(&state, (const unsigned char *)purpose, strlen(purpose) + 1);
    crypto_generichash_update(&state, (const unsigned char *)facts, strlen(facts));
    crypto_generichash_final(&state, out, bytes);
}

enum tutti_result tti_variable_secret(const char *facts, uint8_t secret[static TTI_SECRET_BYTES])
{
    const char *what = "TUTTI_SECRET";
    const char *text = tti_config_text(what);
    const char *path = tti_config_text("TUTTI_SECRET_FILE");
    char line[256];
    if (sodium_init() < 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "libsodium finds no source of random numbers");
    if (!text && path) {
        what = "the first line of TUTTI_SECRET_FILE";
        TTI_TRY(variable_file(path, line, sizeof line));
        text = line;
    }
    if (!text) {
        variable_hash("tutti job secret", facts, secret, TTI_SECRET_BYTES);
        return TUTTI_OK;
    }
    enum tutti_result result = tti_secret_parse(what, text, strlen(text), secret);
    sodium_memzero(line, sizeof line);
    return result == TUTTI_OK ? TUTTI_OK : TTI_FAIL(TUTTI_ERR_USAGE, "%s", tti_error_text());
}

uint16_t tti_port_from(const char *facts)
{
    uint8_t hash[crypto_generichash_BYTES_MIN];
    variable_hash("tutti job port", facts, hash, sizeof hash);
    unsigned number = hash[0] | (unsigned)hash[1] << 8;
    return (uint16_t)(20000 + number % 768 * 16); /* up to 32287 */
}
