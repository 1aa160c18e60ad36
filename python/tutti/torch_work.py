"""What is under way in the backend for PyTorch (torch.py): works, on which a program waits, and the channels
that messages between two ranks go through."""
import datetime
import threading
import time

import torch
import torch._C._distributed_c10d as c10d

from . import binding
from .communicator import Communicator, create_id

FOREVER = datetime.timedelta(0)  # PyTorch's "no timeout" of a wait


# ---- Works -------------------------------------------------------------------------------------


class Pending(c10d.Work):
    """Operations under way. `finish` runs once, when they are over: it moves what they left elsewhere to
    where it belongs. Of who waits twice the second sees what the first saw."""

    def __init__(self, group, requests, result, finish=None):
        super().__init__()
        self._group, self._requests, self._result, self._finish = group, requests, result, finish
        self._lock = threading.Lock()
        self._over, self._error, self._future = False, None, None

    def complete(self):
        """Wait for the end; what went wrong, or None."""
        with self._lock:
            if not self._over:
                for request in self._requests:
                    try:
                        request.wait()
                    except Exception as error:  # told to whoever waits
                        self._error = self._error or error
                if self._finish is not None and self._error is None:
                    self._finish()
                self._over, self._requests, self._finish = True, (), None
        return self._error

    def wait(self, timeout=FOREVER):
        """Return when all is in place, or raise what failed: also when `timeout` is over first."""
        if timeout > FOREVER:
            self._wait_until(time.monotonic() + timeout.total_seconds(), timeout)
        error = self.complete()
        if error is not None:
            raise error
        return True

    def _wait_until(self, end, timeout):
        pause = 1e-5
        while not self.is_completed():
            if time.monotonic() > end:
                raise RuntimeError(f"tutti: the operation is not over after {timeout.total_seconds()} s, the time of "
                                   "this wait")
            time.sleep(pause)
            pause = min(2 * pause, 1e-2)

    def is_completed(self):
        """Is it over, well or not?"""
        return self._over or all(request.test() for request in list(self._requests))

    def is_success(self):
        """Is it over, and well?"""
        return self.is_completed() and self.complete() is None

    def exception(self):
        """What it failed with, once it is over."""
        return self.complete() if self.is_completed() else None

    def result(self):
        """The tensors."""
        return self._result

    def get_future(self):
        """A torch.futures.Future of the tensors; a thread of the group completes it."""
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
                self._group.follow(self)
            return self._future

    def tell(self):
        """Wait, and complete the future."""
        error = self.complete()
        if error is None:
            self._future.set_result(self._result)
        else:
            self._future.set_exception(error)


class AsRequest:
    """A Work where a request is expected."""

    def __init__(self, work):
        self._work = work

    def test(self):
        return self._work.is_completed()

    def wait(self):
        self._work.wait()


def _done():
    over = torch.futures.Future()
    over.set_result([])
    return c10d._create_work_from_future(over)


DONE = _done()


# ---- Messages ----------------------------------------------------------------------------------


class Message:
    """A send or receive that may have to wait until its channel is open; a request like Request."""

    def __init__(self, channel):
        self._channel, self._begun = channel, threading.Event()
        self._request = self._error = None

    def begin(self, start):
        """Call `start`, which gives the request."""
        try:
            self._request = start()
        except (binding.Error, ValueError, TypeError) as error:
            self._error = error
        self._begun.set()

    def fail(self, error):
        """It never began."""
        self._error = error
        self._begun.set()

    def test(self):
        """Is it over?"""
        return self._begun.is_set() and (self._error is not None or self._request.test())

    def wait(self):
        """Return when it is, or raise."""
        self._begun.wait()  # a channel opens, or fails, by its deadline
        try:
            if self._error is not None:
                raise self._error
            self._request.wait()
        except binding.Error as error:
            raise type(error)(error.result, f"{self._channel}: {error}") from error
        except RuntimeError as error:
            raise RuntimeError(f"{self._channel}: {error}") from error


class Channel:
    """Messages from one rank to another: a communicator of these two, rank 0 of which sends. It opens in a
    thread of its own, since the other end may come late; messages called meanwhile follow then."""

    def __init__(self, group, source, target):
        self._group, self._source, self._target = group, source, target
        self._sends = source == group.rank()
        self._lock = threading.Lock()
        self._early, self._closed = [], False
        self._communicator = self._error = None
        threading.Thread(target=self._open, name=f"tutti {source}>{target}", daemon=True).start()

    def __str__(self):
        return f"a message from rank {self._source} to rank {self._target} of the group (0 and 1 here)"

    def _meet(self):
        """The communicator. Its ranks are called only when both are there: a death on the way is seen in the
        group."""
        store, key = self._group.store, f"{self._source}>{self._target}/"
        peer = self._target if self._sends else self._source
        if not self._sends:
            store.set(key + "comes", "1")
            return Communicator(self._group.fetch(key + "id", peer), 1, 2, **self._group.settings)
        self._group.fetch(key + "comes", peer)
        store.set(key + "id", create_id())
        communicator = Communicator(self._group.fetch(key + "id"), 0, 2, **self._group.settings)
        for name in ("id", "comes"):
            store.delete_key(key + name)
        return communicator

    def _open(self):
        communicator = error = None
        try:
            communicator = self._meet()
        except (binding.Error, RuntimeError) as raised:
            error = raised
        with self._lock:
            if not self._closed:
                self._communicator, self._error, communicator = communicator, error, None
            for message, start in self._early:
                self._begin(message, start)
            self._early = None
        if communicator is not None:
            communicator.destroy()

    def _begin(self, message, start):
        if self._error is not None:
            message.fail(self._error)
        else:
            message.begin(lambda: start(self._communicator))

    def call(self, elements):
        """Send, or receive, these; a request."""
        message = Message(self)

        def start(communicator):
            if self._sends:
                return communicator.send(elements, 1, async_op=True)
            return communicator.recv(elements, 0, async_op=True)
        with self._lock:
            if self._early is not None:
                self._early.append((message, start))
            else:
                self._begin(message, start)
        return message

    def close(self, reason=None):
        """End it; with a reason its operations fail first."""
        with self._lock:
            communicator, self._communicator = self._communicator, None
            self._closed = True
            self._error = self._error or RuntimeError(f"{self}: the process group was destroyed")
        if communicator is not None:
            if reason is not None:
                communicator.abort(reason)
            communicator.destroy()
