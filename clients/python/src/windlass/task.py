"""Tasks: the functions that run jobs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, Protocol, TypeVar, Union, cast, overload

from .retry import RetryPolicy
from .values import Duration, seconds

if TYPE_CHECKING:
    from .context import Context

I = TypeVar("I")
O = TypeVar("O")


class Task(Generic[I, O]):
    """A function that runs jobs of one kind and version. Calling it calls the function, e.g. in a unit test."""

    def __init__(
        self,
        function: Callable[..., O],
        kind: str,
        version: int,
        retry: Optional[RetryPolicy],
        timeout: Optional[float],
    ) -> None:
        if not kind:
            raise ValueError("the kind of the task is empty; give it a name")
        if version < 1:
            raise ValueError(f"the version {version} of the task {kind!r}; versions are counted from 1")
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"the task {kind!r} is an async function, and a worker runs threads; call asyncio.run in a plain function")
        self.function = function
        self.kind = kind
        self.version = version
        self.retry = retry
        #: How many seconds one attempt may run, unless the job says otherwise.
        self.timeout = timeout
        self._wants_context = _takes_context(function, kind)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", kind)
        self.__wrapped__ = function

    def __call__(self, *args: Any) -> O:
        return self.function(*args)

    def __repr__(self) -> str:
        return f"<task {self.kind} v{self.version}>"

    def run(self, context: "Context", input: I) -> O:
        """Runs an attempt."""
        return self.function(context, input) if self._wants_context else self.function(input)


class _Decorator(Protocol):
    @overload
    def __call__(self, function: Callable[["Context", I], O]) -> Task[I, O]: ...

    @overload
    def __call__(self, function: Callable[[I], O]) -> Task[I, O]: ...


def task(
    kind: str,
    *,
    version: int = 1,
    retry: Union[RetryPolicy, int, None] = None,
    timeout: Optional[Duration] = None,
) -> _Decorator:
    """Makes a task of a function of an input, or of a context and an input.

    The input is the JSON of the job, and what the function returns must be JSON. `retry` is a policy or a number of attempts; without
    it, there are 20. `timeout` is how long one attempt may run.
    """
    policy = RetryPolicy.times(retry) if isinstance(retry, int) else retry
    limit = None if timeout is None else seconds(timeout)

    def decorate(function: Callable[..., Any]) -> Task[Any, Any]:
        return Task(function, kind, version, policy, limit)

    return cast(_Decorator, decorate)


def _takes_context(function: Callable[..., Any], kind: str) -> bool:
    """Whether the function takes a context before its input, by the number of its parameters."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    required = [each for each in parameters if each.kind in positional and each.default is inspect.Parameter.empty]
    if len(required) not in (1, 2):
        raise TypeError(f"the task {kind!r} has {len(required)} required parameters; it takes (input) or (context, input)")
    return len(required) == 2
