/* A hand: a thread that plays for several ranks, as programs of one process with several GPUs are
 * written. Each rank has a stack of its own, and another has its turn where one would wait for it:
 * at what all of them begin and end together, and for an id. */
#include "device/sim/sim_fiber.h"
#include "tests/random/player.h"

enum { STACK_BYTES = 1 << 20 };

struct seat {
    struct tti_fiber fiber;
    void *argument;
    struct player *player;
    bool over;
};

struct hand {
    struct tti_fiber thread;
    struct seat seats[PLAYERS_MOST];
    int many, now;
    void (*play)(void *argument);
    int come, round; /* of those who meet */
};

static _Thread_local struct hand *hand;

_Thread_local struct player *player;

/* The one whose turn it is from here on; the thread itself if all are over. */
static void hand_turn(struct tti_fiber *from)
{
    for (int k = 1; k <= hand->many; k++) {
        struct seat *next = &hand->seats[(hand->now + k) % hand->many];
        if (next->over)
            continue;
        hand->now = (int)(next - hand->seats);
        player = next->player;
        if (player && player->context)
            CU(cu.current(player->context));
        if (&next->fiber != from)
            tti_fiber_switch(from, &next->fiber);
        return;
    }
    tti_fiber_switch(from, &hand->thread);
}

void hand_pass(void)
{
    struct seat *own = &hand->seats[hand->now];
    own->player = player;
    if (hand->many > 1)
        hand_turn(&own->fiber);
}

/* True for the last one, who goes on before the others do. */
static bool hand_gather(void)
{
    const int round = hand->round;
    if (++hand->come == hand->many) {
        hand->come = 0;
        hand->round++;
        return true;
    }
    while (hand->round == round)
        hand_pass();
    return false;
}

void hand_meet(void)
{
    (void)hand_gather();
}

void all_meet(void)
{
    if (hand_gather())
        hands_meet();
}

void together_begin(struct player *p)
{
    if (!p->crowded || !hand_gather())
        return;
    player_tell("group of all start");
    OK(ncclGroupStart());
}

void together_end(struct player *p)
{
    if (p->crowded && hand_gather()) {
        player_tell("group of all end");
        OK(ncclGroupEnd());
    }
    bands_settle(p);
}

static void seat_main(void *argument)
{
    struct seat *seat = argument;
    hand->play(seat->argument);
    seat->over = true;
    hand_turn(&seat->fiber);
}

void hand_play(void (*play)(void *argument), void *const *arguments, int many)
{
    struct hand own = {.many = many, .play = play};
    hand = &own;
    if (many == 1) {
        play(arguments[0]);
        hand = NULL;
        return;
    }
    tti_fiber_adopt(&own.thread);
    for (int k = 0; k < many; k++) {
        own.seats[k] = (struct seat){.argument = arguments[k]};
        CHECK(tti_fiber_create(&own.seats[k].fiber, STACK_BYTES, seat_main, &own.seats[k]));
    }
    own.now = many - 1;
    hand_turn(&own.thread);
    for (int k = 0; k < many; k++)
        tti_fiber_destroy(&own.seats[k].fiber);
    hand = NULL;
}
