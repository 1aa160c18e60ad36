/* main for a fuzz target without libFuzzer: feeds it every file of the corpus folders named on the
 * command line, so that the ordinary test run replays all inputs that once mattered. A folder that
 * is missing or empty is an error: it would be a test that cannot fail. See tti_fuzzer in
 * cmake/TuttiRules.cmake. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An exact-size copy, so that AddressSanitizer sees a read past the end of the input. */
static int replay_file(const char *path)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &info) != 0) {
        fprintf(stderr, "replay: cannot open %s: %s\n", path, strerror(errno));
        if (file)
            fclose(file);
        return -1;
    }
    size_t size = (size_t)info.st_size;
    uint8_t *data = malloc(size ? size : 1);
    int status = -1;
    if (!data || fread(data, 1, size, file) != size)
        fprintf(stderr, "replay: cannot read %zu bytes of %s\n", size, path);
    else
        status = LLVMFuzzerTestOneInput(data, size);
    free(data);
    fclose(file);
    return status;
}

static int replay_entry(const char *folder, const char *name, int *replayed)
{
    char path[4096];
    struct stat info;
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path || stat(path, &info) != 0) {
        fprintf(stderr, "replay: cannot look at %s/%s\n", folder, name);
        return -1;
    }
    if (!S_ISREG(info.st_mode))
        return 0;
    if (replay_file(path) != 0) {
        fprintf(stderr, "replay: %s failed\n", path);
        return -1;
    }
    ++*replayed;
    return 0;
}

/* The number of files replayed, or -1. */
static int replay_folder(const char *folder)
{
    DIR *directory = opendir(folder);
    if (!directory) {
        fprintf(stderr, "replay: cannot open the corpus %s: %s\n", folder, strerror(errno));
        return -1;
    }
    int replayed = 0;
    int status = 0;
    for (struct dirent *entry; status == 0 && (entry = readdir(directory));)
        status = replay_entry(folder, entry->d_name, &replayed);
    closedir(directory);
    if (status == 0 && replayed == 0) {
        fprintf(stderr, "replay: the corpus %s has no files\n", folder);
        status = -1;
    }
    return status == 0 ? replayed : -1;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER...\n", argv[0]);
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        int replayed = replay_folder(argv[i]);
        if (replayed < 0)
            return 1;
        printf("%s: %d inputs\n", argv[i], replayed);
    }
    return 0;
}
