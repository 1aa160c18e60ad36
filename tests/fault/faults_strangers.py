"""Who is none of the job's: garbage, wrong secrets, floods, sockets held open, replays, other users
(faults.py). The job must not notice."""
import os
import random
import socket
import subprocess
import sys
import threading
import time

import befall
import job
from befall import GRACE, TIMEOUT, Ranks, connect_quietly, listening

GARBAGE = 10000
SECRET, OTHER_SECRET = "5a" * 32, "a5" * 32


HELD = []  # sockets that are kept open


def undisturbed(ranks, at, note, **more):
    """The row of a job in which nobody may have an error. `note`: what the stranger got."""
    row = {"survivors": befall.survivors_of(ranks, None, at, TIMEOUT + GRACE), "note": note,
           "limit_s": TIMEOUT + GRACE, **more}
    for sock in HELD:
        sock.close()
    row["left"] = befall.left_outside(ranks)
    row["wrong"] = befall.verdict(row, TIMEOUT + GRACE, None, False)
    return row


def while_it_runs(transport, attack, size=3):
    """Attack a job that works; its calls go on and end well."""
    ranks = Ranks(transport, size=size, flags=["--bytes", 1 << 18])
    try:
        for rank in ranks.jobs:
            ranks.until(rank, "working")
        at = time.monotonic()
        note = attack(ranks)
        ranks.release()
        return undisturbed(ranks, at, note)
    finally:
        ranks.end()


def while_it_meets(attack, secret=None):
    """Attack the rendezvous, where the last rank is not there yet; then that comes."""
    port = job.free_port()
    base = {"TUTTI_INIT_TIMEOUT": "20"}
    if secret:
        base["TUTTI_SECRET"] = secret
    ranks = Ranks("tcp", environment=base, port=port, of_rank={2: (None, {})})
    try:
        by = time.monotonic() + 10
        while not any(number == port for _, number in listening()) and time.monotonic() < by:
            time.sleep(0.01)
        at = time.monotonic()
        note = attack(port)
        last = Ranks("tcp", environment=base, port=port,
                     of_rank={0: (None, {}), 1: (None, {})})
        ranks.jobs.update(last.jobs)
        for rank in ranks.jobs:
            ranks.until(rank, "working")
        ranks.release()
        return undisturbed(ranks, at, note)
    finally:
        ranks.end()


# ---- attacks ------------------------------------------------------------------------------------

def garbage(count):
    """So many connections with a few hundred random bytes each, at all ports there are."""
    def attack(_):
        chance, done = random.Random(1), 0
        ports = listening()
        if not ports:
            raise job.Failure("nothing listens")
        for k in range(count):
            family, port = ports[k % len(ports)]
            address = ("::1" if family == socket.AF_INET6 else "127.0.0.1", port)
            sock = connect_quietly(address, chance.randbytes(chance.randrange(1, 600)), family)
            if sock:
                done += 1
                sock.close()
        return f"{done} connections with garbage at {len(ports)} ports"
    return attack


def garbage_at(count):
    """The same at the rendezvous."""
    def attack(port):
        chance, done = random.Random(1), 0
        for _ in range(count):
            sock = connect_quietly(("127.0.0.1", port), chance.randbytes(chance.randrange(1, 600)))
            if sock:
                done += 1
                sock.close()
        return f"{done} connections with garbage"
    return attack


def hold(count, drip=False):
    """Sockets that stay open and say nothing, or a byte now and then."""
    def attack(port):
        ports = [port] if isinstance(port, int) else [number for _, number in listening()]
        for k in range(count):
            sock = connect_quietly(("127.0.0.1", ports[k % len(ports)]))
            if sock:
                HELD.append(sock)

        def drop_by_drop():
            for _ in range(40):
                for sock in HELD:
                    try:
                        sock.send(b"T")
                    except OSError:
                        pass
                time.sleep(0.1)
        if drip:
            threading.Thread(target=drop_by_drop, daemon=True).start()
            time.sleep(1)
        return f"{len(HELD)} sockets held open" + (", a byte every 0.1 s" if drip else "")
    return attack


def wrong_secret(port):
    """A rank 2 with another secret; what it is told."""
    stranger = Ranks("tcp", environment={"TUTTI_SECRET": OTHER_SECRET, "TUTTI_INIT_TIMEOUT": "3"},
                     port=port, of_rank={0: (None, {}), 1: (None, {})})
    try:
        stranger.jobs[2].wait(10)
        errors = stranger.events(2, "error")
        if not errors:
            raise job.Failure("the stranger has no error")
        return f"the stranger is told: {errors[0][2].split(' ', 2)[2]}"
    finally:
        stranger.end()


def overheard():
    """What rank 2 of a job of the same secret says first, by way of a listener in between."""
    said, port = [], job.free_port()
    environment = {"TUTTI_SECRET": SECRET, "TUTTI_INIT_TIMEOUT": "20"}
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(1)

        def pump(source, sink, keep):
            while True:
                try:
                    data = source.recv(4096)
                    if keep:
                        said.append(data)
                    sink.sendall(data)
                except OSError:
                    return
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return

        def pass_on():
            near, _ = door.accept()
            far = socket.create_connection(("127.0.0.1", port))
            threading.Thread(target=pump, args=(far, near, False), daemon=True).start()
            pump(near, far, True)
        threading.Thread(target=pass_on, daemon=True).start()
        ranks = Ranks("tcp", environment=environment, port=port, of_rank={2: (None, {})})
        last = Ranks("tcp", environment=environment, port=door.getsockname()[1],
                     of_rank={0: (None, {}), 1: (None, {})})
        ranks.jobs.update(last.jobs)
        try:
            ranks.until(2, "working")
            return b"".join(said)
        finally:
            ranks.end()


def replay(port):
    """A rank's handshake with an earlier meeting is played again at this one."""
    heard, answers = overheard(), []
    if len(heard) < 132:
        raise job.Failure(f"only {len(heard)} bytes of a handshake were heard")
    for _ in range(20):
        sock = connect_quietly(("127.0.0.1", port), heard[:132])
        if sock:
            try:
                while sock.recv(4096):
                    pass
                answers.append("closed")
            except OSError as error:
                answers.append(type(error).__name__)
            sock.close()
    return f"a handshake of an earlier job, played 20 times: {', '.join(sorted(set(answers)))}"


def other_user(ranks):
    """Another user, and this one, at the local sockets of the ranks."""
    program = (
        "import os, socket, sys\n"
        "if sys.argv[1] != 'same': os.setgid(65534); os.setuid(65534)\n"
        "done = 0\n"
        "for k in range(200):\n"
        "    for name in sys.argv[2:]:\n"
        "        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "        s.settimeout(1)\n"
        "        try:\n"
        "            s.connect('\\0' + name); s.send(os.urandom(100)); done += 1\n"
        "        except OSError: pass\n"
        "        s.close()\n"
        "print(done)\n")
    names = [line.removeprefix("socket @") for line in job.things() - ranks.before
             if line.startswith("socket @tutti-")]
    if not names:
        raise job.Failure("no local socket is listened on")
    if os.geteuid() != 0:
        raise job.Skip("only root can be another user")
    done = [subprocess.run([sys.executable, "-c", program, who, *names], capture_output=True,
                           text=True, check=True).stdout.strip() for who in ("other", "same")]
    return (f"{done[0]} connections of another user and {done[1]} of this one, with garbage, at "
            f"{len(names)} sockets")


def sweep_under_garbage():
    """Two ranks sweep over tcp, while 10,000 garbage connections come: every element is right."""
    port = job.free_port()
    before = job.things()
    jobs = [job.Job([job.BENCH, "-b", "8", "-e", "4M", "-f", "8", "-n", "20", "-w", "2",
                     "--transport", "tcp", "-N", "60"], job.by_hand(rank, 2, port))
            for rank in range(2)]
    try:
        jobs[0].until(lambda: jobs[0].rows(), 30, "the first row")
        at = time.monotonic()
        note = garbage(GARBAGE)(None)
        took = time.monotonic() - at
        under_way = jobs[0].process.poll() is None
        survivors, wrong = [], []
        if not under_way:
            wrong.append("the sweep was over before the attack")
        for rank, each in enumerate(jobs):
            each.succeed(100, tables=int(rank == 0))
            survivors.append({"rank": rank, "seconds": None, "code": 0, "text": "", "left": [],
                              "over": round(time.monotonic() - at, 3)})
        left = sorted(job.things() - before)
        wrong += [f"left behind: {left}"] if left else []
        return {"survivors": survivors, "left": left, "wrong": wrong, "limit_s": 100,
                "note": f"{note} in {took:.1f} s; the sweep "
                        f"{'was still running' if under_way else 'had ended'} then; "
                        "no wrong value"}
    finally:
        for each in jobs:
            each.end()


def cases():
    """All of them."""
    yield "10,000 garbage connections at a sweep of 2 ranks", "tcp", sweep_under_garbage
    yield ("garbage at all ports while it runs", "tcp",
           lambda: while_it_runs("tcp", garbage(1000)))
    yield ("another user, and garbage, at the local sockets", "shm",
           lambda: while_it_runs("shm", other_user))
    yield ("200 sockets held open while it runs", "tcp",
           lambda: while_it_runs("tcp", lambda _: hold(200)(None)))
    yield "garbage at the rendezvous", "tcp", lambda: while_it_meets(garbage_at(1000))
    yield "1,000 sockets held open at the rendezvous", "tcp", lambda: while_it_meets(hold(1000))
    yield ("100 sockets that drip at the rendezvous", "tcp",
           lambda: while_it_meets(hold(100, True)))
    yield ("a stranger with another secret at the rendezvous", "tcp",
           lambda: while_it_meets(wrong_secret, SECRET))
    yield "a replayed handshake at the rendezvous", "tcp", lambda: while_it_meets(replay, SECRET)
