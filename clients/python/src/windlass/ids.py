"""Ids of jobs: UUIDs of version 7, made by whoever submits, so that a repeated submit is recognised."""

from __future__ import annotations

import secrets
import threading
import time
import uuid

_lock = threading.Lock()
_last_ms = 0
_counter = 0
_COUNTER_BITS = 18


def new_job_id() -> str:
    """Draws the id of a new job. Ids that a process draws sort in the order in which they were drawn."""
    global _last_ms, _counter
    with _lock:
        now = time.time_ns() // 1_000_000
        if now > _last_ms:
            _last_ms, _counter = now, 0
        elif _counter + 1 < 1 << _COUNTER_BITS:
            _counter += 1
        else:
            # The clock stands still or went back: the id is from the next millisecond.
            _last_ms, _counter = _last_ms + 1, 0
        millis, counter = _last_ms, _counter
    high, low = counter >> 6, counter & 0x3F
    bits = (millis & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low << 56 | secrets.randbits(56)
    return str(uuid.UUID(int=bits))
