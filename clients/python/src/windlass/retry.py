"""Retry policies of tasks: which errors are worth another attempt, how many, and after what delay.

A policy is a list of rules. The first rule whose class matches the error decides; each has its own number of attempts and its own
delays. An error that no rule matches fails the job. The server applies the policy; a policy that was given with the job comes before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Tuple, Type, Union

from .values import Duration, millis

#: The class of an error: its word, or the exception class of that name.
ErrorClass = Union[str, Type[BaseException]]


@dataclass(frozen=True)
class RetryRule:
    """One rule of a policy."""

    #: After how many such errors the job fails.
    attempts: int
    #: The class that it matches; `None` matches every class.
    error_class: Optional[str] = None
    #: The delay after the first error. It doubles with each further one.
    base: Duration = 1.0
    #: The longest delay.
    cap: Duration = 300.0
    #: Which part of the delay is random, from 0 to 1.
    jitter: float = 0.25

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"a rule of {self.attempts} attempts; a job has at least one")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"a jitter of {self.jitter}; give the part of the delay that is random, from 0 to 1")

    def to_json(self) -> Dict[str, Any]:
        base = millis(self.base)
        return {
            "class": self.error_class,
            "attempts": self.attempts,
            "base_ms": base,
            "cap_ms": max(base, millis(self.cap)),
            "jitter": self.jitter,
        }


@dataclass(frozen=True)
class RetryPolicy:
    """When failed attempts of a task are repeated."""

    rules: Tuple[RetryRule, ...] = ()

    @classmethod
    def times(cls, attempts: int, *, base: Duration = 1.0, cap: Duration = 300.0, jitter: float = 0.25) -> "RetryPolicy":
        """At most this many attempts, whatever the error."""
        return cls().otherwise(attempts, base=base, cap=cap, jitter=jitter)

    @classmethod
    def never(cls) -> "RetryPolicy":
        """One attempt, no retry."""
        return cls.times(1)

    def on(
        self,
        error_class: ErrorClass,
        attempts: int,
        *,
        base: Duration = 1.0,
        cap: Duration = 300.0,
        jitter: float = 0.25,
    ) -> "RetryPolicy":
        """Adds a rule for one class of errors. An exception class stands for its own name, and not for its subclasses."""
        return self._with(RetryRule(attempts, class_word(error_class), base, cap, jitter))

    def otherwise(self, attempts: int, *, base: Duration = 1.0, cap: Duration = 300.0, jitter: float = 0.25) -> "RetryPolicy":
        """Adds a rule for every class that no earlier rule matches."""
        return self._with(RetryRule(attempts, None, base, cap, jitter))

    def _with(self, rule: RetryRule) -> "RetryPolicy":
        return replace(self, rules=(*self.rules, rule))

    def to_json(self) -> List[Dict[str, Any]]:
        """As the server reads it."""
        return [rule.to_json() for rule in self.rules]


def class_word(error_class: ErrorClass) -> str:
    """The word of a class of errors, by which retry rules match it and people search for it."""
    return error_class if isinstance(error_class, str) else error_class.__name__
