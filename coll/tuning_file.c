/* Where the tuning lies, and reading and writing it there (coll/tuning.h). */
#include "coll/tuning.h"

#include "base/config.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char system_place[] = "/etc/tutti/tuning.json";

static enum tutti_result file_load(int fd, const char *path, char **text, size_t *bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return TTI_FAIL_ERRNO("cannot look at %s", path);
    if (!S_ISREG(info.st_mode) || info.st_size > TTI_TUNING_FILE_BYTES)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is no regular file of at most %d bytes", path,
                        TTI_TUNING_FILE_BYTES);
    char *made = tti_calloc((size_t)info.st_size + 1, 1);
    if (!made)
        return TUTTI_ERR_MEMORY;
    size_t used = 0;
    while (used < (size_t)info.st_size) {
        ssize_t got = read(fd, made + used, (size_t)info.st_size - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            free(made);
            return TTI_FAIL_ERRNO("cannot read %s", path);
        }
        if (got == 0)
            break;
        used += (size_t)got;
    }
    *text = made;
    *bytes = used;
    return TUTTI_OK;
}

enum tutti_result tti_tuning_read(const char *path, struct tti_tuning **tuning)
{
    char *text = NULL;
    size_t bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return TTI_FAIL_ERRNO("cannot open %s", path);
    enum tutti_result result = file_load(fd, path, &text, &bytes);
    close(fd);
    TTI_TRY(result);
    result = tti_tuning_from_json(text, bytes, tuning);
    free(text);
    return result == TUTTI_OK ? TUTTI_OK : TTI_CONTEXT(result, "%s", path);
}

/* The folders above `path`. */
static enum tutti_result file_make_folders(const char *path)
{
    char folder[TTI_TUNING_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST)
            return TTI_FAIL_ERRNO("cannot make the folder %s", folder);
        *slash = '/';
    }
    return TUTTI_OK;
}

enum { TEMPORARY_BYTES = TTI_TUNING_PATH_BYTES + 32 };

/* Opens the file beside `path` that becomes it. */
static enum tutti_result file_open_temporary(const char *path, char temporary[TEMPORARY_BYTES],
                                             FILE **out)
{
    if (strlen(path) >= TTI_TUNING_PATH_BYTES)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "the path of the tuning has more than %d characters",
                        TTI_TUNING_PATH_BYTES - 1);
    TTI_TRY(file_make_folders(path));
    snprintf(temporary, TEMPORARY_BYTES, "%s.%ld.new", path, (long)getpid());
    FILE *file = fopen(temporary, "we");
    if (!file)
        return TTI_FAIL_ERRNO("cannot write %s", temporary);
    *out = file;
    return TUTTI_OK;
}

enum tutti_result tti_tuning_can_write(const char *path)
{
    char temporary[TEMPORARY_BYTES];
    FILE *out = NULL;
    TTI_TRY(file_open_temporary(path, temporary, &out));
    fclose(out);
    unlink(temporary);
    struct stat there;
    if (stat(path, &there) == 0 && S_ISDIR(there.st_mode))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "cannot write %s: that is a folder", path);
    return TUTTI_OK;
}

enum tutti_result tti_tuning_write(const struct tti_tuning *tuning, const char *path)
{
    char temporary[TEMPORARY_BYTES];
    FILE *out = NULL;
    TTI_TRY(file_open_temporary(path, temporary, &out));
    enum tutti_result result = tti_tuning_write_json(tuning, out);
    if (ftell(out) > TTI_TUNING_FILE_BYTES && result == TUTTI_OK)
        result = TTI_FAIL(TUTTI_ERR_ARGUMENT,
                          "the tuning takes more than %d bytes; measure fewer rank counts",
                          TTI_TUNING_FILE_BYTES);
    if (fclose(out) != 0 && result == TUTTI_OK)
        result = TTI_FAIL_ERRNO("cannot write %s", temporary);
    if (result == TUTTI_OK && rename(temporary, path) != 0)
        result = TTI_FAIL_ERRNO("cannot move %s to %s", temporary, path);
    if (result != TUTTI_OK)
        unlink(temporary);
    return result;
}

/* The user's own place, as the XDG base directories say. Empty when there is no home. */
static void file_user_place(char *path, size_t bytes)
{
    const char *config = tti_config_text("XDG_CONFIG_HOME"), *home = tti_config_text("HOME");
    path[0] = '\0';
    if (config && config[0] == '/')
        snprintf(path, bytes, "%s/tutti/tuning.json", config);
    else if (home)
        snprintf(path, bytes, "%s/.config/tutti/tuning.json", home);
}

void tti_tuning_place(char *path, size_t bytes)
{
    const char *named = tti_config_text("TUTTI_TUNING");
    if (named && strcmp(named, "off") != 0)
        snprintf(path, bytes, "%s", named);
    else
        file_user_place(path, bytes);
}

/* A file that is there: is it good, and is it of this machine? */
static struct tti_tuning *file_use(const char *path, char *source)
{
    struct tti_tuning *tuning = NULL;
    struct tti_machine here;
    if (tti_tuning_read(path, &tuning) != TUTTI_OK) {
        snprintf(source, TTI_TUNING_PATH_BYTES, "none; ignored %.900s", tti_error_text());
        TTI_LOG(TTI_LOG_WARN, "the tuning is ignored: %s", tti_error_text());
        return NULL;
    }
    tti_machine_identify("", &here);
    if (!tti_machine_alike(&here, &tuning->machine)) {
        snprintf(source, TTI_TUNING_PATH_BYTES,
                 "none; ignored %.700s: it is of another machine (%.90s: %s, %d CPUs)", path,
                 tuning->machine.host, tuning->machine.cpu, tuning->machine.cpus);
        TTI_LOG(TTI_LOG_INFO,
                "the tuning %s is ignored: it is of %s (%s, %d CPUs), this is %s, %d CPUs; run "
                "tutti-tune here",
                path, tuning->machine.host, tuning->machine.cpu, tuning->machine.cpus, here.cpu,
                here.cpus);
        tti_tuning_destroy(tuning);
        return NULL;
    }
    if (tuning->unknown)
        TTI_LOG(TTI_LOG_INFO, "%s: %zu series are of algorithms that this build does not have",
                path, tuning->unknown);
    snprintf(source, TTI_TUNING_PATH_BYTES, "%s", path);
    TTI_LOG(TTI_LOG_INFO, "tuning: %s, %zu series", path, tuning->count);
    return tuning;
}

enum tutti_result tti_tuning_find(struct tti_tuning **tuning, char *source)
{
    const char *named = tti_config_text("TUTTI_TUNING");
    char path[TTI_TUNING_PATH_BYTES];
    *tuning = NULL;
    snprintf(source, TTI_TUNING_PATH_BYTES, "none%s", named ? " (TUTTI_TUNING is off)" : "");
    if (named && strcmp(named, "off") == 0)
        return TUTTI_OK;
    if (named) {
        if (access(named, F_OK) != 0)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "TUTTI_TUNING is \"%s\": there is no such file (%s); name one that "
                            "tutti-tune wrote, or \"off\"",
                            named, strerror(errno));
        *tuning = file_use(named, source);
        return TUTTI_OK;
    }
    file_user_place(path, sizeof path);
    if (path[0] && access(path, F_OK) == 0)
        *tuning = file_use(path, source);
    else if (access(system_place, F_OK) == 0)
        *tuning = file_use(system_place, source);
    return TUTTI_OK;
}
