/* Lists that a child made by fork begins without (base/process_lock.h). */
#include "base/process_lock.h"

#include "tests/tutti_cmocka.h"

#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

struct entry {
    struct entry *next;
};

/* Two lists: forgetting one is not enough. */
static struct entry *ones, *others;

static void ones_forget(void)
{
    ones = NULL;
}

static void others_forget(void)
{
    others = NULL;
}

static struct tti_process_lock ones_lock = TTI_PROCESS_LOCK(ones_forget);
static struct tti_process_lock others_lock = TTI_PROCESS_LOCK(others_forget);

static void add(struct tti_process_lock *lock, struct entry **list, struct entry *entry)
{
    tti_process_lock(lock);
    entry->next = *list;
    *list = entry;
    tti_process_unlock(lock);
}

static struct entry *first(struct tti_process_lock *lock, struct entry *const *list)
{
    tti_process_lock(lock);
    struct entry *found = *list;
    tti_process_unlock(lock);
    return found;
}

/* In a child: does it see nothing of the parent's, and has it lists of its own, which a child of
 * its own sees nothing of? */
static int child_status(int generation)
{
    struct entry own = {NULL};
    int status = 0;
    alarm(60); /* ends it, should a lock be held for ever */
    if (first(&ones_lock, &ones) || first(&others_lock, &others))
        return 1;
    add(&ones_lock, &ones, &own);
    if (first(&ones_lock, &ones) != &own || own.next)
        return 2;
    if (generation > 0) {
        const pid_t pid = fork();
        if (pid == 0)
            _exit(child_status(generation - 1));
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            return 3;
    }
    return first(&ones_lock, &ones) == &own ? 0 : 4;
}

static void forked(void)
{
    int status = -1;
    const pid_t pid = fork();
    if (pid == 0)
        _exit(child_status(1));
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void child_has_nothing(void **state)
{
    struct entry one[2], other;
    (void)state;
    add(&ones_lock, &ones, &one[0]);
    add(&ones_lock, &ones, &one[1]);
    add(&others_lock, &others, &other);
    for (int i = 0; i < 2; i++) { /* the handler stays */
        forked();
        assert_ptr_equal(first(&ones_lock, &ones), &one[1]);
        assert_ptr_equal(one[1].next, &one[0]);
        assert_null(one[0].next);
        assert_ptr_equal(first(&others_lock, &others), &other);
    }
    ones = others = NULL;
}

static sem_t held, over;

static void *hold(void *nothing)
{
    tti_process_lock(&others_lock);
    sem_post(&held);
    sem_wait(&over);
    tti_process_unlock(&others_lock);
    return nothing;
}

/* The thread that holds the lock is not in the child. In the parent it holds it still. */
static void held_at_the_fork(void **state)
{
    pthread_t thread;
    (void)state;
    assert_int_equal(sem_init(&held, 0, 0) + sem_init(&over, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, hold, NULL), 0);
    sem_wait(&held);
    forked();
    assert_true(pthread_mutex_trylock(&others_lock.mutex) != 0);
    sem_post(&over);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_null(first(&others_lock, &others));
    sem_destroy(&held);
    sem_destroy(&over);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(child_has_nothing),
        cmocka_unit_test(held_at_the_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
