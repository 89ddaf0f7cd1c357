"""Values as the HTTP API writes them: durations, times, JSON."""

from __future__ import annotations

import json
import re
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, List, Optional, Union

#: A span of time: a `timedelta`, or a number of seconds.
Duration = Union[timedelta, float]


def seconds(duration: Duration) -> float:
    """The number of seconds, which must not be negative."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{duration!r} is not a span of time; give a timedelta or a number of seconds from 0 on")
    return value


def millis(duration: Duration) -> int:
    """The number of milliseconds."""
    return round(seconds(duration) * 1000)


def duration_text(duration: Duration) -> str:
    """As the API reads it, e.g. `1500ms`."""
    return f"{millis(duration)}ms"


def time_text(at: datetime) -> str:
    """As the API reads it: RFC 3339 in UTC. A time without a zone is refused, because nobody knows which is meant."""
    if at.tzinfo is None:
        raise ValueError(f"{at!r} has no time zone; use datetime.now(timezone.utc) or set tzinfo")
    return at.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time(text: Optional[str]) -> Optional[datetime]:
    """A time of the API. Digits beyond microseconds are cut."""
    if text is None:
        return None
    body, zone = (text[:-1], "+00:00") if text.endswith(("Z", "z")) else (text[:-6], text[-6:])
    whole, _, fraction = body.partition(".")
    return datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}{zone}")


def to_json(value: Any) -> bytes:
    """JSON in UTF-8. Raises `TypeError` or `ValueError` for what JSON cannot express: NaN, and text that is no Unicode."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("the value is nested too deeply, or contains itself") from None


class TooDeep(ValueError):
    """The value is nested deeper than this Python can read."""


def from_json(data: bytes) -> Any:
    """The value of JSON in UTF-8. Raises `TooDeep` or another `ValueError` for anything else."""
    try:
        return json.loads(data)
    except RecursionError:
        raise TooDeep("its JSON is nested deeper than this Python can read; see sys.setrecursionlimit") from None


#: Stands for a value that is nested too deeply.
TOO_DEEP = object()
#: The strings and the brackets of JSON.
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def from_json_cut(data: bytes, level: int) -> Any:
    """Like `from_json`, but a value within `level` others that is nested too deeply is `TOO_DEEP`: what is beside it can be read."""
    try:
        return from_json(data)
    except TooDeep:
        pass
    name = uuid.uuid4().hex
    values: List[Any] = []
    pieces: List[bytes] = []
    depth, highest, begin, end = 0, 0, 0, 0
    for token in _TOKENS.finditer(data):
        character = token[0]
        if character in (b"[", b"{"):
            if depth == level:
                begin, highest = token.start(), depth
            depth += 1
            highest = max(highest, depth)
        elif character in (b"]", b"}"):
            depth -= 1
            if depth == level and highest > level + _PLAIN_DEPTH:
                values.append(_value_or_too_deep(data[begin : token.end()]))
                pieces += [data[end:begin], b'{"%s":%d}' % (name.encode(), len(values) - 1)]
                end = token.end()
    pieces.append(data[end:])

    def restore(value: Dict[str, Any]) -> Any:
        return values[value[name]] if name in value else value

    return json.loads(b"".join(pieces), object_hook=restore)


#: How deep values may be nested that are read in place.
_PLAIN_DEPTH = 50


def _value_or_too_deep(data: bytes) -> Any:
    try:
        return from_json(data)
    except TooDeep:
        return TOO_DEEP
