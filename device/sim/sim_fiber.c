/* Switching stacks (sim_fiber.h): by hand on x86-64 and AArch64, since swapcontext makes a system
 * call each time; by ucontext elsewhere. The sanitizers are told of every switch. */
#include "device/sim/sim_fiber.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(__has_feature)
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(TTI_SIM_TSAN) /* the build's ThreadSanitizer, switched off for this file */
#define FIBER_TSAN 1
#include <sanitizer/tsan_interface.h>
enum { SWITCH_NO_SYNC = 1 }; /* a switch orders nothing: threads of a GPU are not ordered by it */
#endif

/* Kernels have small frames; those of the sanitizers are larger. */
#if defined(FIBER_ASAN) || defined(FIBER_TSAN)
enum { KERNEL_STACK_BYTES = 128 << 10 };
#else
enum { KERNEL_STACK_BYTES = 64 << 10 };
#endif

#if defined(__x86_64__)

/* Saves what the ABI makes a callee keep; the rest the compiler has saved around the call. */
void tti_fiber_jump(void **save, void *sp);
__asm__(".text\n.globl tti_fiber_jump\n.hidden tti_fiber_jump\n.type tti_fiber_jump,@function\n"
        "tti_fiber_jump:\n"
        "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp, (%rdi)\n"
        "mov %rsi, %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"
        "ret\n.size tti_fiber_jump,.-tti_fiber_jump\n");

static void *fiber_first_frame(char *top, void (*start)(void))
{
    uintptr_t *sp = (uintptr_t *)(void *)top;
    *--sp = 0;                /* no return address: the ABI's alignment at entry */
    *--sp = (uintptr_t)start; /* what ret goes to */
    for (int i = 0; i < 6; i++)
        *--sp = 0;
    return sp;
}

#elif defined(__aarch64__)

void tti_fiber_jump(void **save, void *sp);
__asm__(".text\n.globl tti_fiber_jump\n.hidden tti_fiber_jump\n.type tti_fiber_jump,%function\n"
        "tti_fiber_jump:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp, #0]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\n stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n"
        "stp d14, d15, [sp, #144]\n"
        "mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
        "ldp x19, x20, [sp, #0]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\n ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n ldp d12, d13, [sp, #128]\n"
        "ldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\n"
        "ret\n.size tti_fiber_jump,.-tti_fiber_jump\n");

static void *fiber_first_frame(char *top, void (*start)(void))
{
    uintptr_t *frame = (uintptr_t *)(void *)(top - 160);
    for (int i = 0; i < 20; i++)
        frame[i] = 0;
    frame[11] = (uintptr_t)start; /* x30, the return address */
    return frame;
}

#else
#error \
    "the simulated device knows how to switch stacks on x86-64 and AArch64 only; set TUTTI_SIM=OFF"
#endif

/* What the first switch to a fiber must know, and what every switch leaves for the arrival. */
static __thread struct tti_fiber *fiber_now;
static __thread struct tti_fiber *fiber_before;

/* Not inlined: a fiber may be gone on with by another host thread, whose `fiber_before` lies
 * elsewhere. */
__attribute__((noinline)) static void fiber_arrived(struct tti_fiber *fiber)
{
#if defined(FIBER_ASAN)
    const void *bottom = NULL;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fiber->fake, &bottom, &bytes);
    if (!fiber_before->memory) { /* the host thread's stack is known only now */
        fiber_before->bottom = (void *)(uintptr_t)bottom;
        fiber_before->bytes = bytes;
    }
#else
    (void)fiber;
#endif
}

static void fiber_start(void)
{
    struct tti_fiber *fiber = fiber_now;
    fiber_arrived(fiber);
    fiber->entry(fiber->argument);
    __builtin_trap(); /* entry returned: there is nowhere to go */
}

/* Linux 6.13 and newer mark pages, without a mapping for each. */
static void stack_guard(char *guard, size_t bytes)
{
    enum { GUARD_INSTALL = 102 };
    if (madvise(guard, bytes, GUARD_INSTALL) != 0)
        mprotect(guard, bytes, PROT_NONE);
}

static size_t stack_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* So many, each with `bytes` behind its guard. */
static char *stacks_map(size_t count, size_t bytes)
{
    const size_t guard = stack_page();
    char *memory = mmap(NULL, count * (guard + bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    for (size_t i = 0; i < count; i++)
        stack_guard(memory + i * (guard + bytes), guard);
    return memory;
}

static void fiber_make(struct tti_fiber *fiber, char *memory, size_t bytes, void (*entry)(void *),
                       void *argument)
{
    const size_t guard = stack_page();
    *fiber = (struct tti_fiber){
        .memory = memory,
        .bottom = memory + guard,
        .bytes = bytes,
        .entry = entry,
        .argument = argument,
    };
    fiber->sp = fiber_first_frame(memory + guard + bytes, fiber_start);
#if defined(FIBER_TSAN)
    fiber->sanitizer = __tsan_create_fiber(0);
#endif
}

void *tti_fiber_stacks_create(unsigned count)
{
    return stacks_map(count, KERNEL_STACK_BYTES);
}

void tti_fiber_stacks_destroy(void *stacks, unsigned count)
{
    if (stacks)
        munmap(stacks, count * (stack_page() + KERNEL_STACK_BYTES));
}

void tti_fiber_create_on(struct tti_fiber *fiber, void *stacks, unsigned index,
                         void (*entry)(void *), void *argument)
{
    fiber_make(fiber, (char *)stacks + index * (stack_page() + KERNEL_STACK_BYTES),
               KERNEL_STACK_BYTES, entry, argument);
}

void tti_fiber_end_on(struct tti_fiber *fiber)
{
    if (!fiber->memory)
        return;
#if defined(FIBER_ASAN) /* frames that never returned: their marks are not for the next here */
    char *top = (char *)fiber->bottom + fiber->bytes;
    __asan_unpoison_memory_region(fiber->sp, (size_t)(top - (char *)fiber->sp));
#endif
#if defined(FIBER_TSAN)
    __tsan_destroy_fiber(fiber->sanitizer);
#endif
    fiber->memory = NULL;
}

bool tti_fiber_create(struct tti_fiber *fiber, size_t stack_bytes, void (*entry)(void *),
                      void *argument)
{
    char *memory = stacks_map(1, stack_bytes);
    if (!memory)
        return false;
    fiber_make(fiber, memory, stack_bytes, entry, argument);
    return true;
}

void tti_fiber_destroy(struct tti_fiber *fiber)
{
    void *memory = fiber->memory;
    const size_t bytes = stack_page() + fiber->bytes;
    tti_fiber_end_on(fiber);
    if (memory)
        munmap(memory, bytes);
}

void tti_fiber_adopt(struct tti_fiber *thread)
{
    *thread = (struct tti_fiber){.memory = NULL};
#if defined(FIBER_TSAN)
    thread->sanitizer = __tsan_get_current_fiber();
#endif
}

void tti_fiber_switch(struct tti_fiber *from, struct tti_fiber *to)
{
    fiber_before = from;
    fiber_now = to;
#if defined(FIBER_ASAN)
    __sanitizer_start_switch_fiber(&from->fake, to->bottom, to->bytes);
#endif
#if defined(FIBER_TSAN)
    __tsan_switch_to_fiber(to->sanitizer, SWITCH_NO_SYNC);
#endif
    tti_fiber_jump(&from->sp, to->sp);
    fiber_arrived(from);
}
