"""Threads and their control: stop tokens, task groups, budgets, channels.

The daemon and the verifier start all their threads through this module, except those of libraries.

The threads of a TaskGroup live inside its `with` block, which joins them at its end. The first error stops the other
threads, and is raised from the block; several errors are raised as a BaseExceptionGroup. If the group was stopped from
outside, leaving the block raises `Cancelled`, so that the code after the block only runs if the work is finished.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from verifier.runtime.waits import waiting

T = TypeVar("T")

# Poll intervals of waits, in seconds. SLOW_POLL is for conditions that query a cluster or seldom change.
POLL = 0.05
SLOW_POLL = 0.2


class Alarm:
    """A timer that runs `act` when `seconds` have passed since `set`. Leaving its `with` block cancels the timer.

    `set` may be called only once. The thread of the timer belongs to no task group, because `act` must run even if
    joining the other threads takes too long.
    """

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self._timer = threading.Timer(seconds, act)
        self._timer.daemon = True

    def set(self) -> None:
        self._timer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()


class Cancelled(BaseException):
    """Raised in work whose owner has requested a stop.

    It is not an error, and derives from BaseException, so that `except Exception` does not catch it.
    """


class StopToken:
    """A token through which the owner of some work asks the work to stop. `cause` is the reason for the stop.

    Stopping a token also stops its child tokens. A token with a `parent` is a child of that token.
    """

    def __init__(self, parent: StopToken | None = None) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()  # guards _children and the first setting of cause
        self._children: list[StopToken] = []
        self.cause: str | BaseException | None = None
        if parent is not None:
            parent._adopt(self)

    def _adopt(self, child: StopToken) -> None:
        with self._lock:
            self._children.append(child)
        if self.stopped:
            child.stop(self.cause)

    def release(self, child: StopToken) -> None:
        """Forget a child token whose work has ended; no-op if the token is not a child."""
        with self._lock:
            if child in self._children:
                self._children.remove(child)

    @property
    def stopped(self) -> bool:
        return self._event.is_set()

    def stop(self, cause: str | BaseException | None) -> None:
        """Stop this token and its children. Each token keeps the cause of its first stop."""
        with self._lock:
            if self.cause is None:
                self.cause = cause
            children = list(self._children)
            self._event.set()
        for child in children:
            child.stop(cause)

    def check(self) -> None:
        """Raise `Cancelled` if a stop was requested."""
        if self._event.is_set():
            raise Cancelled(str(self.cause))

    def sleep(self, seconds: float) -> None:
        """Sleep; raise `Cancelled` as soon as a stop is requested."""
        if self._event.wait(seconds):
            raise Cancelled(str(self.cause))

    def wait(self, changed: threading.Condition) -> None:
        """Wait up to `SLOW_POLL` seconds for a notification of the condition `changed`.

        The caller must hold the lock of the condition. Raises `Cancelled` if the token is already stopped. A stop
        during the wait raises nothing.
        """
        self.check()
        changed.wait(SLOW_POLL)


def wait_until(holds: Callable[[], bool], stop: StopToken, every: float = POLL) -> None:
    """Wait until `holds` returns true, polling it every `every` seconds; raise `Cancelled` when stopped."""
    while not holds():
        stop.sleep(every)


class TaskGroup:
    """Starts threads, and joins all of them at the end of its `with` block.

    The first error stops the other threads, and is raised from the block; several errors are raised as a
    BaseExceptionGroup. If there is no error and the token `parent` is stopped, the block raises `Cancelled`. The
    threads and the body of the block must obey the token `stop`.
    """

    def __init__(self, name: str, parent: StopToken) -> None:
        self.name = name
        self._parent = parent
        self.stop = StopToken(parent)
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def spawn(self, name: str, work: Callable[..., None], *arguments: Any) -> None:
        """Run `work(*arguments)` in a thread of this group."""
        thread = threading.Thread(
            target=self._outermost, args=(work, arguments), name=f"{self.name}/{name}"
        )
        thread.start()
        self._threads.append(thread)

    def _outermost(self, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        try:
            work(*arguments)
        except Cancelled:
            pass
        except BaseException as error:  # noqa: B036 - raised again from the block by __exit__
            self._errors.append(error)
            self.stop.stop(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.stop.stop(error)
        self._join()
        self._parent.release(self.stop)
        errors = list(self._errors)
        if error is not None and not isinstance(error, Cancelled):
            errors.append(error)
        if errors:
            self._raise(errors, error)
        else:
            self._parent.check()

    def _join(self) -> None:
        if not self._errors:
            for thread in self._threads:
                thread.join()
            return
        # The failure is raised when the last thread has ended, which can take as long as its calls.
        failed = f"The task {self.name} has failed ({self._errors[0]}), and waits until its calls to the clusters end"
        with waiting(
            failed, "You need not do anything: the calls of the task end within three minutes."
        ):
            for thread in self._threads:
                thread.join()

    def _raise(self, errors: list[BaseException], body: BaseException | None) -> None:
        if len(errors) > 1:
            raise BaseExceptionGroup(f"{len(errors)} tasks of {self.name} failed", errors)
        if errors[0] is not body:
            raise errors[0]


class Budget:
    """An amount, usually of bytes, that threads share: `take` waits for a part of it, `give_back` returns a part.

    Waiting threads are served in the order of their calls. A request for more than the whole amount is granted when no
    thread holds a part of it. When the stop token is stopped, every wait raises `Cancelled`.
    """

    def __init__(self, whole: int, stop: StopToken) -> None:
        self._whole = whole
        self._stop = stop
        self._changed = threading.Condition()  # guards everything below
        self._line: deque[object] = deque()
        self._taken = 0

    def take(self, amount: int) -> None:
        """Wait until `amount` is available, and take it from the budget. The caller must return it with `give_back`.

        Raises `Cancelled` when stopped.
        """
        ticket = object()
        with self._changed:
            self._line.append(ticket)
            try:
                while self._line[0] is not ticket or not self._has(amount):
                    self._stop.wait(self._changed)
                self._stop.check()
                self._taken += amount
            finally:
                self._line.remove(ticket)
                self._changed.notify_all()

    def give_back(self, amount: int) -> None:
        """Give `amount` back to the budget, for waiting threads. A different thread may have taken it."""
        with self._changed:
            self._taken -= amount
            self._changed.notify_all()

    @contextmanager
    def hold(self, amount: int) -> Iterator[None]:
        """Wait until `amount` is available, take it from the budget, and give it back after the block.

        Raises `Cancelled` when stopped.
        """
        self.take(amount)
        try:
            yield
        finally:
            self.give_back(amount)

    def _has(self, amount: int) -> bool:
        return not self._taken or self._taken + amount <= self._whole


class Channel(Generic[T]):
    """A queue between threads, bounded by the total weight of its items, such as their bytes.

    An item that is heavier than the whole capacity is accepted when the queue is empty. Every wait ends when the token
    is stopped, so a producer does not wait forever after a consumer has failed.
    """

    def __init__(self, capacity: int, stop: StopToken) -> None:
        self._capacity = capacity
        self._stop = stop
        self._changed = threading.Condition()  # guards everything below
        self._items: deque[tuple[T, int]] = deque()
        self._weight = 0
        self._closed = False

    def put(self, item: T, weight: int) -> None:
        """Wait until the channel has room for an item, and add the item. Raises `Cancelled` when stopped."""
        with self._changed:
            while self._weight and self._weight + weight > self._capacity:
                self._wait()
            self._stop.check()
            self._items.append((item, weight))
            self._weight += weight
            self._changed.notify_all()

    def take(self) -> T | None:
        """Wait for the next item and return it; None when the channel is closed and empty.

        Raises `Cancelled` when stopped, even if items are left.
        """
        with self._changed:
            self._stop.check()
            while not self._items:
                if self._closed:
                    return None
                self._wait()
            return self._pop()

    def take_ready(self) -> T | None:
        """Return the next item without waiting; None if the channel is empty."""
        with self._changed:
            return self._pop() if self._items else None

    def close(self) -> None:
        """Declare that no more items will come. Consumers still get the items that are left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        while (item := self.take()) is not None:
            yield item

    def _pop(self) -> T:
        item, weight = self._items.popleft()
        self._weight -= weight
        self._changed.notify_all()
        return item

    def _wait(self) -> None:
        self._stop.wait(self._changed)
        self._stop.check()


def together(first: Callable[[], T], second: Callable[[], T]) -> tuple[T, T]:
    """Make two calls at the same time, the second one in a new thread, and return both results.

    The thread inherits the context variables of the caller. If a call fails, wait until both have ended, and raise its
    error; if both fail, raise the error of the first call.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def call_second() -> None:
        try:
            results.append(second())
        except BaseException as error:  # noqa: B036 - raised again in the calling thread
            errors.append(error)

    name = f"{threading.current_thread().name}/other"
    thread = threading.Thread(target=copy_context().run, args=(call_second,), name=name)
    thread.start()
    try:
        result = first()
    finally:
        thread.join()
    if errors:
        raise errors[0]
    return result, results[0]


def for_each(
    name: str,
    items: Iterable[T],
    work: Callable[[T, StopToken], None],
    threads: int,
    stop: StopToken,
) -> None:
    """Run `work(item, stop)` for each item, in at most `threads` threads; return when all items are done.

    If there is only one item, or `threads` is 1, the calling thread does the work. The threads inherit the context
    variables of the caller, such as its patience with retries. Work on the items begins in their order. The first error
    stops the other calls of `work` through their token, and is raised; several errors become a BaseExceptionGroup.
    Raises `Cancelled` when stopped.
    """
    with TaskGroup(name, stop) as group:
        left = list(items)
        waiting: Channel[T] = Channel(len(left) + 1, group.stop)
        for item in left:
            waiting.put(item, 1)
        waiting.close()

        def take_all() -> None:
            for item in waiting:
                work(item, group.stop)

        if min(threads, len(left)) < 2:
            take_all()
        else:
            for number in range(min(threads, len(left))):
                group.spawn(str(number), copy_context().run, take_all)


@contextmanager
def single_error() -> Iterator[None]:
    """If the block raises a BaseExceptionGroup, raise its first exception instead.

    This is for callers that handle single errors: the threads of a group usually fail for the same reason.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group
