/* CRC-32C against the examples of RFC 3720 (appendix B.4), and every way against the tables: all
 * lengths around the blocks, every alignment, any cut into parts. */
#include "base/crc32c.h"

#include "tests/tutti_cmocka.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 32 * 1024 };

static uint8_t pattern[MOST + 64];

static void known_values(void **state)
{
    (void)state;
    uint8_t zeros[32] = {0}, ones[32], up[32], down[32];
    static const uint8_t command[48] = {
        0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18, 0x28, [40] = 0x02};
    memset(ones, 0xff, sizeof ones);
    for (int i = 0; i < 32; i++) {
        up[i] = (uint8_t)i;
        down[i] = (uint8_t)(31 - i);
    }
    assert_int_equal(tti_crc32c(0, zeros, 32), 0x8a9136aa);
    assert_int_equal(tti_crc32c(0, ones, 32), 0x62a8ab43);
    assert_int_equal(tti_crc32c(0, up, 32), 0x46dd794e);
    assert_int_equal(tti_crc32c(0, down, 32), 0x113fdb5c);
    assert_int_equal(tti_crc32c(0, command, 48), 0xd9963a56);
    assert_int_equal(tti_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(tti_crc32c(0, "", 0), 0);
}

static void all_ways_agree(void **state)
{
    (void)state;
    size_t last = 0;
    while (tti_crc32c_way(last + 1))
        last++;
    const struct tti_crc32c_way *tables = tti_crc32c_way(last);
    for (size_t i = 0; i < last; i++) {
        const struct tti_crc32c_way *way = tti_crc32c_way(i);
        if (!way->runs_here()) {
            print_message("%s: not on this processor\n", way->name);
            continue;
        }
        print_message("%s\n", way->name);
        for (size_t bytes = 0; bytes <= MOST; bytes += bytes < 1100 ? 1 : bytes < 8000 ? 61 : 509) {
            const uint8_t *data = pattern + bytes % 64;
            uint32_t before = (uint32_t)(bytes * 2654435761u);
            if (way->update(before, data, bytes) != tables->update(before, data, bytes))
                fail_msg("%s: wrong for %zu bytes", way->name, bytes);
        }
    }
}

static void parts_make_the_whole(void **state)
{
    (void)state;
    uint32_t whole = tti_crc32c(0, pattern, MOST);
    for (size_t cut = 0; cut <= MOST; cut += 397)
        assert_int_equal(tti_crc32c(tti_crc32c(0, pattern, cut), pattern + cut, MOST - cut), whole);
}

/* What it is for. */
static void every_flipped_bit_shows(void **state)
{
    (void)state;
    uint32_t right = tti_crc32c(0, pattern, 1024);
    for (size_t bit = 0; bit < 8 * 1024; bit += 3) {
        pattern[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(tti_crc32c(0, pattern, 1024), right);
        pattern[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(all_ways_agree),
        cmocka_unit_test(parts_make_the_whole),
        cmocka_unit_test(every_flipped_bit_shows),
    };
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)((i * 2654435761u) >> 13);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
