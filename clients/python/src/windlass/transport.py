"""Requests over HTTP: one connection, and calls that are repeated until they are answered.

Every call of the API may be repeated: a repeated call has the effect of one. So a lost answer, a broken connection and an answer that is
no JSON are all handled alike: by repeating the call after a growing delay.
"""

from __future__ import annotations

import http.client
import ipaddress
import logging
import os
import socket
import ssl
import stat
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import quote, urlencode, urlsplit

from .backoff import Backoff
from .errors import ApiError, TooManyRequests, TransportError, Unauthorized, Unavailable, api_error
from .values import TooDeep, from_json

log = logging.getLogger("windlass")

#: The longest answer that is read: more than a claim of many jobs with large inputs.
MAX_ANSWER = 256 << 20
#: How many seconds a connection may take to be made.
CONNECT_TIMEOUT = 10.0
#: How many seconds longer than asked an answer may take that the server delays on purpose.
WAIT_MARGIN = 15.0


class Aborted(TransportError):
    """The connection was aborted by this program."""


class Target:
    """Where the server is, and how this program proves who it is."""

    def __init__(
        self,
        url: str,
        token: Optional[str],
        token_file: Union[str, Path, None],
        ca_file: Union[str, Path, None],
        timeout: float,
        allow_http: bool = False,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is not the address of a server; write it as http://127.0.0.1:7077")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the address contains a user or a password; give the token as `token` or `token_file`")
        if token is not None and token_file is not None:
            raise ValueError("both `token` and `token_file` are given; use one")
        if ca_file is not None and parts.scheme != "https":
            raise ValueError("`ca_file` is given for an address without TLS; write https://")
        if parts.scheme == "http" and not allow_http and not is_loopback(parts.hostname):
            raise ValueError(
                f"http://{parts.netloc} is not encrypted: everybody on the way could read the token and the jobs; use https://, or set"
                " `allow_http=True` if the whole way is private"
            )
        self.host: str = parts.hostname
        self.port = parts.port
        self.prefix = parts.path.rstrip("/")
        self.timeout = timeout
        self._tls = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file)) if parts.scheme == "https" else None
        self._token_file = None if token_file is None else Path(token_file)
        self._token = token
        if self._token_file is not None:
            self._token = self._read_token(self._token_file)
        self._check(self._token)

    def authorization(self) -> Optional[str]:
        """The value of the header, if there is a token."""
        return None if self._token is None else f"Bearer {self._token}"

    def reload_token(self) -> bool:
        """Reads the file of the token again, after a token was refused. Returns whether there is another one."""
        if self._token_file is None:
            return False
        try:
            token = self._read_token(self._token_file)
            self._check(token)
        except (OSError, ValueError) as error:
            log.warning("the token cannot be read again: %s", error)
            return False
        changed, self._token = token != self._token, token
        return changed

    @staticmethod
    def _read_token(path: Path) -> str:
        with path.open(encoding="utf-8") as file:
            check_secret(path, os.fstat(file.fileno()))
            token = file.read().strip()
        if not token:
            raise ValueError(f"the file {path} has no token; write one with `windlass tokens create NAME --file {path}`")
        return token

    @staticmethod
    def _check(token: Optional[str]) -> None:
        if token is not None and (not token.isascii() or not token.isprintable() or " " in token):
            raise ValueError("the token contains characters that no token has")

    def new_connection(self, timeout: float) -> http.client.HTTPConnection:
        """A connection that is not open yet. Making it may take `timeout` seconds."""
        if self._tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self._tls)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, whatever names resolve to."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def check_secret(path: Path, found: os.stat_result) -> None:
    """Refuses a file with a secret that others may read. A file of root may be read by its group, through which services get such files."""
    if os.name != "posix":
        return
    others = 0o037 if found.st_uid == 0 and os.geteuid() != 0 else 0o077
    if found.st_mode & others:
        mode = stat.S_IMODE(found.st_mode)
        raise ValueError(f"the token file {path} may be read by others (its mode is {mode:04o}); make it yours alone: `chmod 600 {path}`")


class Connection:
    """A connection that is opened again when it breaks. One thread uses it; any thread may abort it."""

    def __init__(self, target: Target, timeout: Optional[float] = None) -> None:
        """`timeout` is how many seconds an answer may take, if that is not what the target says."""
        self.target = target
        self._timeout = target.timeout if timeout is None else timeout
        self._http: Optional[http.client.HTTPConnection] = None
        self._aborted = False

    def abort(self) -> None:
        """Ends the request that runs, and every later one, with `Aborted`."""
        self._aborted = True
        connection = self._http
        sock = None if connection is None else connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        """Closes it. The next request opens it again."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def send(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        wait: float = 0.0,
        parse: Callable[[bytes], Any] = from_json,
    ) -> Tuple[int, Any]:
        """Sends a request once, and returns the status and the JSON of its answer, as `parse` reads it.

        `wait` is for how many seconds the server was asked to delay the answer. Raises `TransportError` if there is no answer that
        makes sense, and an `ApiError` if it is a refusal.
        """
        try:
            status, headers, data = self._exchange(method, path, body, wait)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            if self._aborted:
                raise Aborted("the request was aborted") from None
            text = str(error) or type(error).__name__
            raise TransportError(f"{method} {path} was not answered: {text}") from error
        try:
            value = parse(data)
        except ValueError as error:
            if isinstance(error, TooDeep):
                raise TransportError(f"the answer to {method} {path} cannot be read: {error}") from error
            if status < 400:
                self.close()
                raise TransportError(f"the answer to {method} {path} is not JSON: {error}") from error
            value = None
        if not 200 <= status < 300:
            raise api_error(status, value, _retry_after(headers))
        return status, value

    def _exchange(self, method: str, path: str, body: Optional[bytes], wait: float) -> Tuple[int, http.client.HTTPMessage, bytes]:
        reused = self._http is not None
        try:
            return self._exchange_once(method, path, body, wait)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            if not reused or self._aborted:
                raise
            # The server closed the idle connection. The call may be repeated, whatever has become of it.
            self.close()
            return self._exchange_once(method, path, body, wait)

    def _exchange_once(self, method: str, path: str, body: Optional[bytes], wait: float) -> Tuple[int, http.client.HTTPMessage, bytes]:
        if self._http is None:
            self._http = self.target.new_connection(min(CONNECT_TIMEOUT, self._timeout))
        connection = self._http
        if connection.sock is None:
            connection.connect()
        # Typed here: what is known of it before `connect` is that there is none.
        sock: socket.socket = connection.sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._aborted:
            raise Aborted("the connection was aborted")
        timeout = max(self._timeout, wait + WAIT_MARGIN) if wait else self._timeout
        sock.settimeout(timeout)
        headers: Dict[str, str] = {"Accept": "application/json"}
        authorization = self.target.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, self.target.prefix + path, body=body, headers=headers)
        response = connection.getresponse()
        data = _read_body(response)
        if response.will_close:
            self.close()
        return response.status, response.headers, data


class Caller:
    """Sends calls until they are answered, for a bounded time. Each thread has a connection of its own."""

    def __init__(self, target: Target, retry_for: float) -> None:
        self.target = target
        self.retry_for = retry_for
        self._local = threading.local()
        self._connections: List[Connection] = []
        self._lock = threading.Lock()

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Optional[Mapping[str, Any]] = None,
        body: Optional[bytes] = None,
        wait: float = 0.0,
        until: Optional[float] = None,
    ) -> Tuple[int, Any]:
        """Sends a call, and repeats it if its answer is lost or the server is busy, but not after `until` of the monotonic clock."""
        given = {name: _query_text(value) for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        backoff = Backoff()
        give_up_at: Optional[float] = None
        token_reloaded = False
        while True:
            try:
                return self._connection().send(method, target, body, wait)
            except Unauthorized:
                if token_reloaded or not self.target.reload_token():
                    raise
                token_reloaded = True
                continue
            except (TransportError, TooManyRequests, Unavailable) as error:
                if is_untrusted(error) or isinstance(error.__cause__, TooDeep):
                    raise
                now = time.monotonic()
                # The time of the first try does not count: it may have waited as it was asked to.
                if give_up_at is None:
                    give_up_at = now + self.retry_for if until is None else min(until, now + self.retry_for)
                after = error.retry_after if isinstance(error, ApiError) else None
                delay = backoff.delay(after or 0.0)
                if now + delay > give_up_at:
                    raise
                log.debug("%s %s: %s; repeating it in %.2f s", method, path, error, delay)
            time.sleep(delay)

    def close(self) -> None:
        """Closes the connections of all threads. A later call opens them again."""
        with self._lock:
            connections, self._connections = self._connections, []
            self._local = threading.local()
        for connection in connections:
            connection.close()

    def _connection(self) -> Connection:
        connection: Optional[Connection] = getattr(self._local, "connection", None)
        if connection is None:
            connection = Connection(self.target)
            with self._lock:
                self._local.connection = connection
                self._connections.append(connection)
        return connection


def _read_body(response: http.client.HTTPResponse) -> bytes:
    """Reads the body of an answer, unless it is too long."""
    too_long = ValueError(f"the answer has more than {MAX_ANSWER} bytes")
    if response.length is not None:
        if response.length > MAX_ANSWER:
            raise too_long
        # Without a limit it raises an error if the connection ends before the body does.
        return response.read()
    pieces: List[bytes] = []
    size = 0
    while size <= MAX_ANSWER:
        # Python 3.9 allocates as much as may be read.
        piece = response.read(1 << 20)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
    raise too_long


def is_untrusted(error: BaseException) -> bool:
    """Whether the server's certificate is not trusted, which a repeat does not change."""
    return isinstance(error.__cause__, ssl.SSLCertVerificationError)


def segment(text: str) -> str:
    """A text as one segment of a path."""
    return quote(text, safe="")


def _query_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _retry_after(headers: http.client.HTTPMessage) -> Optional[float]:
    """The header `Retry-After`, if it is a number of seconds; at most a minute of it is believed."""
    text = headers.get("Retry-After", "")
    return min(float(text), 60.0) if text.isascii() and text.isdigit() else None
