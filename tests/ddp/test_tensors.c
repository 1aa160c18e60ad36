/* Tensors in files: what is written reads back; an older file outlives a failed write. With an
 * argument: writes the file of test_tensors.py there, or reads the one that Python wrote. */
#include "tests/tutti_cmocka.h"
#include "tutti/ddp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const float reals[6] = {0, -1.5f, 3.14159274f, 1e-30f, 65504, -0.0f};
static const uint16_t brains[2] = {0x3f80, 0xc040}; /* 1, -3 */
static const int64_t longs[3] = {INT64_MIN, 0, INT64_MAX};

static const struct tutti_tensor tensors[] = {
    {.name = "h.0.attn/weight", .type = TUTTI_FLOAT32, .dims = 2, .shape = {2, 3}, .data = reals},
    {.name = "a \"quoted\" \\ n\303\244me",
     .type = TUTTI_BFLOAT16,
     .dims = 1,
     .shape = {2},
     .data = brains},
    {.name = "longs", .type = TUTTI_INT64, .dims = 1, .shape = {3}, .data = longs},
    {.name = "number", .type = TUTTI_FLOAT32, .dims = 0, .data = reals + 2},
    {.name = "nothing", .type = TUTTI_FLOAT16, .dims = 2, .shape = {0, 4}, .data = NULL},
};
enum { TENSORS = sizeof tensors / sizeof *tensors };
static const struct tutti_pair metadata[] = {{"format", "pt"}, {"note", "\"x\" \\ \303\266"}};

static enum tutti_result write_to(const char *path)
{
    return tutti_tensors_write(path, tensors, TENSORS, metadata, 2);
}

static void check_file(const char *path)
{
    tutti_tensor_file *file = NULL;
    assert_int_equal(tutti_tensors_open(path, &file), TUTTI_OK);
    assert_int_equal(tutti_tensors_count(file), TENSORS);
    assert_null(tutti_tensors_at(file, TENSORS));
    assert_null(tutti_tensors_find(file, "number "));
    assert_string_equal(tutti_tensors_metadata(file, "note"), metadata[1].value);
    assert_null(tutti_tensors_metadata(file, "more"));
    for (int i = 0; i < TENSORS; i++) {
        char out[64];
        const struct tutti_tensor *t = tutti_tensors_find(file, tensors[i].name);
        assert_non_null(t);
        assert_int_equal(t->type, tensors[i].type);
        assert_int_equal(t->dims, tensors[i].dims);
        assert_memory_equal(t->shape, tensors[i].shape, sizeof t->shape);
        const size_t elements = tutti_tensor_elements(t);
        assert_int_equal(tutti_tensors_read(file, t, 0, elements, t->type, out), TUTTI_OK);
        if (elements > 0)
            assert_memory_equal(out, tensors[i].data, elements * tutti_type_size(t->type));
    }
    tutti_tensors_close(file);
}

static void reads_back(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti-tensors-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    assert_int_equal(write_to(path), TUTTI_OK);
    check_file(path);

    tutti_tensor_file *file = NULL;
    float wide[2], some[2];
    uint16_t narrow[6];
    assert_int_equal(tutti_tensors_open(path, &file), TUTTI_OK);
    const struct tutti_tensor *t = tutti_tensors_find(file, tensors[1].name);
    assert_int_equal(tutti_tensors_read(file, t, 0, 2, TUTTI_FLOAT32, wide), TUTTI_OK);
    assert_true(wide[0] == 1 && wide[1] == -3);
    t = tutti_tensors_find(file, tensors[0].name);
    assert_int_equal(tutti_tensors_read(file, t, 1, 2, TUTTI_FLOAT32, some), TUTTI_OK);
    assert_true(some[0] == reals[1] && some[1] == reals[2]);
    assert_int_equal(tutti_tensors_read(file, t, 0, 6, TUTTI_FLOAT16, narrow), TUTTI_OK);
    assert_true(narrow[4] == 0x7bff && narrow[5] == 0x8000);
    assert_int_equal(tutti_tensors_read(file, t, 5, 2, TUTTI_FLOAT32, some), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_tensors_read(file, t, 0, 1, TUTTI_INT32, some), TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(tutti_tensors_read(file, &tensors[0], 0, 1, TUTTI_FLOAT32, some),
                     TUTTI_ERR_ARGUMENT);
    tutti_tensors_close(file);
    unlink(path);
}

static void refuses(const char *path, const char *bytes, size_t count, const char *text)
{
    tutti_tensor_file *file = NULL;
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, count, out), count);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(tutti_tensors_open(path, &file), TUTTI_ERR_ARGUMENT);
    if (!strstr(tutti_last_error(), text))
        fail_msg("\"%s\" is not in \"%s\"", text, tutti_last_error());
}

static void refuses_header(const char *path, const char *json, size_t data, const char *text)
{
    char bytes[512] = {(char)strlen(json), 0, 0, 0, 0, 0, 0, 0};
    memcpy(bytes + 8, json, strlen(json));
    refuses(path, bytes, 8 + strlen(json) + data, text);
}

static void refused(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti-tensors-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    refuses(path, "short", 5, "too short");
    refuses(path, "PK\3\4 this is an archive", 24, "no safetensors file, or a torn one");
    refuses_header(path, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7,
                   "torn");
    refuses_header(path, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
                   "do not fit");
    refuses_header(path, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
                   "begins at byte 4, not 0");
    refuses_header(path,
                   "{\"a\":{\"dtype\":\"I8\",\"shape\":[9007199254740992,2048,512],"
                   "\"data_offsets\":[0,0]}}",
                   0, "do not fit");
    refuses_header(path,
                   "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
                   "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                   0, "there twice");
    refuses_header(path, "{\"a\":{\"dtype\":\"F31\",\"shape\":[],\"data_offsets\":[0,4]}}", 4,
                   "\"F31\"");
    refuses_header(path, "{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, "needs dtype");
    unlink(path);
}

static void cannot_be_written(void **state)
{
    (void)state;
    struct tutti_tensor bad = tensors[0];
    bad.name = "a\nb";
    assert_int_equal(tutti_tensors_write("/tmp/tutti-none", &bad, 1, NULL, 0), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_tensors_write("/nowhere/x", tensors, 1, NULL, 0), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "/nowhere/x"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back),
        cmocka_unit_test(refused),
        cmocka_unit_test(cannot_be_written),
    };
    if (argc == 3 && strcmp(argv[1], "write") == 0)
        return write_to(argv[2]) == TUTTI_OK ? 0 : 1;
    if (argc == 3 && strcmp(argv[1], "read") == 0) {
        check_file(argv[2]);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
