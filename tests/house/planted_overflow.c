/* A parser with a planted bug, for test_fuzz_finds.sh: a record is 'T', a length, and that many
 * bytes; the length is believed. The fuzzer must find the read past the end of the input. */
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || data[0] != 'T')
        return 0;
    volatile unsigned sum = 0;
    for (size_t i = 0; i < data[1]; i++)
        sum += data[2 + i];
    return 0;
}
