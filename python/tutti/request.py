"""Operations under way: requests, and groups, which collect operations to run them together."""
import contextlib
import threading

from .binding import Error, Result, check, library

_thread = threading.local()
MANY = 256  # requests that a communicator looks after before it sees which of them are over


class Request:
    """An operation under way. It holds the arrays, and the communicator it."""

    def __init__(self, communicator, handle, views):
        self._communicator, self._handle, self._views = communicator, handle, views
        self._lock, self._error = threading.Lock(), None
        communicator._look_after(self)

    def test(self):
        """Is the operation over? It must still be waited for."""
        with self._lock:
            if self._handle is None:
                return True
            result = library.tutti_test(self._handle)
        return result != Result.IN_PROGRESS

    def wait(self):
        """Return when the operation is over, or raise what it failed with. A second time: at once, with
        the same."""
        self.end()
        if self._error is not None:
            raise self._error

    def end(self):
        """Wait; what it failed with is kept for who waits later."""
        with self._lock:
            if self._handle is None:
                return
            handle, self._handle = self._handle, None
            try:
                check(library.tutti_wait(handle))
            except Error as error:
                self._error = error
            self._communicator._requests.discard(self)
            self._views = None


def keep(views):
    """Within a group: hold these until it has run."""
    kept = getattr(_thread, "kept", None)
    if kept is not None:
        kept.extend(views)


def wait_all(requests):
    """Wait for all; then raise the first error, if there is one."""
    failure = None
    for request in requests:
        try:
            request.wait()
        except Error as error:
            failure = failure or error
    if failure:
        raise failure


@contextlib.contextmanager
def group():
    """Operations called inside run together at its end: all sends and receives at once."""
    outer = getattr(_thread, "kept", None)
    check(library.tutti_group_start())
    _thread.kept = outer if outer is not None else []
    try:
        yield
    except BaseException:
        # What was collected cannot be forgotten, and a group that is left open would take all later calls.
        library.tutti_group_end()
        _thread.kept = outer
        raise
    try:
        check(library.tutti_group_end())
    finally:
        _thread.kept = outer
