"""Jobs of several processes, for the tests of this folder.

A job runs in a session of its own and carries a mark in its environment, which every descendant
inherits: what is left of it is found in /proc wherever it hides. Only what carries the mark is ever
ended. A test is a list of cases; each raises Failure or returns; main() runs and reports them.
"""
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

BIN = os.environ.get("TUTTI_BIN", "build/bin")
BENCH = os.path.join(BIN, "allreduce_bench")
TUTTIRUN = os.path.join(BIN, "tuttirun")
MARK = "TUTTI_SYSTEM_TEST"
CLEAN = "# Out of bounds values : 0 OK"
ROW = re.compile(r"^(?:\[[^\]]*\])?\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)\s")
SKIPPED = 77


class Failure(Exception):
    """A case did not go as it must."""


class Skip(Exception):
    """A case cannot run on this machine."""


def clean_environment():
    """Our environment without what launchers and Tutti read."""
    mine = re.compile(r"^(TUTTI_|OMPI_|PMI|SLURM_|HYDRA|MPI|TORCHELASTIC_|MASTER_|RANK$|"
                      r"WORLD_SIZE$|LOCAL_|GROUP_|ROLE_)")
    return {name: value for name, value in os.environ.items() if not mine.match(name)}


def marked(mark):
    """The living processes that carry a mark: {pid: environment}."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                text = file.read()
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in text.split(b"\0"):
            pairs = (item.partition(b"=") for item in text.split(b"\0") if item)
            found[int(entry)] = {name.decode(): value.decode() for name, _, value in pairs}
    return found


MARKS = set()  # of all jobs of this program


def may_be_ours():
    """A test for the inode of a socket: was it left behind by a job of this program? Where the network
    is everybody's, only what a process of a job holds is known to be."""
    if os.environ.get("TUTTI_ISOLATED") == "yes":
        return lambda inode: True
    held = set()
    for pid in {pid for mark in MARKS for pid in marked(mark)}:
        try:
            held |= {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        except OSError:  # it has ended
            continue
    return lambda inode: f"socket:[{inode}]" in held


class Standstills:
    """When this process stood still, since the first look: a thread sleeps for a moment again and
    again, and sees what it oversleeps. Why: tests/awake.h."""
    LATE = 0.1  # ordinary lateness

    def __init__(self):
        self.lock = threading.Lock()
        self.spans = []  # (begin, end)
        self.last = None

    def _watch(self):
        while True:
            time.sleep(0.02)
            self.look()

    def look(self):
        """Note one that has just ended; the time."""
        with self.lock:
            now = time.monotonic()
            if self.last is None:
                threading.Thread(target=self._watch, daemon=True).start()
            elif now - self.last > self.LATE:
                self.spans.append((self.last, now))
            self.last = now
            return now

    def between(self, begin, end):
        """Seconds of them between two times of time.monotonic()."""
        self.look()
        return sum(max(0.0, min(end, b) - max(begin, a)) for a, b in self.spans)


STANDSTILLS = Standstills()


def awake():
    """Seconds, for bounds on what must be prompt: a clock that stands still while this process does."""
    now = STANDSTILLS.look()
    return now - STANDSTILLS.between(0, now)


class Job:
    """A command that runs, its output as it comes, and the processes that it started."""

    def __init__(self, command, environment=None, mark=None):
        self.command = [str(word) for word in command]
        self.mark = mark or secrets.token_hex(8)
        MARKS.add(self.mark)
        self.out, self.err = [], []
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
            env={**clean_environment(), MARK: self.mark, **(environment or {})})
        self.readers = [threading.Thread(target=self._read, args=pair, daemon=True)
                        for pair in ((self.process.stdout, self.out),
                                     (self.process.stderr, self.err))]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def _read(stream, lines):
        for line in stream:
            lines.append(line.rstrip("\n"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Kill what is left."""
        for pid in marked(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        for reader in self.readers:
            reader.join(20)
        self.process.stdout.close()
        self.process.stderr.close()

    def ranks(self, program="allreduce_bench"):
        """{rank: pid} of the processes that run `program` with RANK in their environment."""
        found = {}
        for pid, environment in marked(self.mark).items():
            try:
                name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
            except OSError:
                continue
            if name == program and "RANK" in environment:
                found[int(environment["RANK"])] = pid
        return found

    def rows(self):
        """Lines of the benchmark's table so far."""
        return [line for line in self.out if ROW.match(line)]

    def wait(self, seconds):
        """The exit status, or a failure when it takes longer."""
        by = awake() + seconds
        while self.process.poll() is None:
            try:
                self.process.wait(max(0.01, by - awake()))
            except subprocess.TimeoutExpired:
                if awake() >= by:
                    self.fail(f"still running after {seconds:g} s")
        status = self.process.returncode
        for reader in self.readers:
            reader.join(20)
        return status

    def until(self, condition, seconds, what):
        """Wait for condition(), which must come true before the job ends, or by what it said."""
        by = awake() + seconds
        while not condition():
            if self.process.poll() is not None:
                status = self.wait(0)
                self.check(condition(), f"ended with status {status} before {what}")
                return
            if awake() > by:
                self.fail(f"no {what} within {seconds:g} s")
            time.sleep(0.02)

    def fail(self, text):
        """Give up, with everything that the job said."""
        raise Failure("\n".join(
            [f"{text}: {' '.join(self.command)}", f"  after {time.monotonic() - self.begun:.1f} s",
             *(f"  out| {line}" for line in self.out[-40:]),
             *(f"  err| {line}" for line in self.err[-40:])]))

    def check(self, condition, text):
        """A condition on this job's outcome."""
        if not condition:
            self.fail(text)

    def succeed(self, seconds, tables=1):
        """Run to the end, with status 0 and this many complete tables of right data."""
        status = self.wait(seconds)
        self.check(status == 0, f"exit status {status}, not 0")
        self.check(sum(CLEAN in line for line in self.out) == tables,
                   f"not {tables} times \"{CLEAN}\"")
        if tables:
            self.check(self.rows(), "no row of a table")

    def gone(self, seconds=1.0):
        """No process of the job is left."""
        by = awake() + seconds
        while marked(self.mark):
            if awake() > by:
                left = ", ".join(f"{pid} ({describe(pid)})" for pid in marked(self.mark))
                self.fail(f"left running: {left}")
            time.sleep(0.02)


def describe(pid):
    """The command line of a process."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "gone"


HELD = []  # of free_port, for as long as this process runs


def free_port():
    """A TCP port that stays free until a rank listens there: as tuttirun does, a socket holds it that
    does not listen. The kernel gives ports that nobody holds to whoever asks, in tests beside this
    one, too; and a rank may be long in coming."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    HELD.append(sock)
    return sock.getsockname()[1]


def by_hand(rank, size, port, host="127.0.0.1"):
    """The variables of a rank that no launcher started."""
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": host,
            "MASTER_PORT": str(port)}


def need(*programs):
    """Skip unless all programs are installed."""
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        raise Skip(f"not installed: {', '.join(missing)}")


def isolate():
    """Start this program again where it is alone: its own network (and so its own local sockets),
    its own /dev/shm and /tmp. What a job leaves can then be listed completely. Where that is not
    allowed the test goes on, and watches what changes in those that are everybody's."""
    if "TUTTI_ISOLATED" in os.environ:
        if os.environ["TUTTI_ISOLATED"] == "no":
            print("note: no namespaces here; of sockets only those of living processes are looked for")
        return
    os.environ["TUTTI_ISOLATED"] = "yes"
    inside = "ip link set lo up && mount -t tmpfs none /dev/shm && exec \"$@\""
    if not any(os.path.realpath(path).startswith("/tmp/") for path in (BIN, __file__)):
        os.environ["TUTTI_OWN_TMP"] = "yes"
        inside = f"mount -t tmpfs none /tmp && {inside}"
    for flags in (["--net", "--mount"], ["--net", "--mount", "--map-root-user"]):
        prefix = ["unshare", *flags, "sh", "-c", inside, "sh"]
        if shutil.which("ip") and shutil.which("unshare") and not subprocess.run(
                [*prefix, "true"], capture_output=True, check=False).returncode:
            os.execvp(prefix[0], [*prefix, sys.executable, *sys.argv])
    os.environ["TUTTI_ISOLATED"] = "no"
    os.environ.pop("TUTTI_OWN_TMP", None)
    isolate()


def things():
    """What could be left behind besides processes: segments, socket files, temporary files."""
    found = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}
    if "TUTTI_OWN_TMP" in os.environ:
        found |= {f"/tmp/{name}" for name in os.listdir("/tmp")}
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        sockets = [line.split() for line in list(file)[1:]]
    ours = may_be_ours()
    return found | {f"socket {words[7]}" for words in sockets if len(words) > 7 and ours(words[6])}


def main(cases, all_needed=False):
    """Run the cases (or those whose names have a word of the command line), report, exit: skipped
    if none could run or, where all are needed, if one could not."""
    failed, skipped, ran = [], [], 0
    for name, case in cases:
        if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
            continue
        begin = time.monotonic()
        try:
            case()
            ran += 1
            print(f"ok      {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Skip as skip:
            skipped.append(name)
            print(f"SKIPPED {name}: {skip}", flush=True)
        except Failure as failure:
            failed.append(name)
            print(f"FAILED  {name} ({time.monotonic() - begin:.1f} s): {failure}", flush=True)
    print(f"{ran} passed, {len(failed)} failed, {len(skipped)} skipped")
    if failed:
        sys.exit(1)
    sys.exit(SKIPPED if not ran or (skipped and all_needed) else 0)
