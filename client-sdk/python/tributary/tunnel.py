"""An operator's connections through an HTTP proxy (CONNECT)."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import time
import urllib.request
from typing import Any

from ._tributary import Error

#: Longest time for the proxy's answer.
_SECONDS = 20.0
#: Most bytes of the proxy's answer.
_HEAD_BYTES = 16 << 10

#: Name in messages, host, port, and the value of `Proxy-Authorization`.
Proxy = tuple[str, str, int, "str | None"]


class Tunnels(urllib.request.HTTPSHandler):
    """Opens every connection through this proxy. TLS is with the server."""

    def __init__(self, tls: ssl.SSLContext, proxy: Proxy) -> None:
        super().__init__(context=tls)
        self._tls, self._proxy = tls, proxy

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(lambda host, **more: _Tunnel(host, self._tls, self._proxy, **more), req)


class _Tunnel(http.client.HTTPSConnection):
    def __init__(self, host: str, tls: ssl.SSLContext, proxy: Proxy, **more: Any) -> None:
        super().__init__(host, context=tls, **more)
        self._tls, self._proxy = tls, proxy

    def connect(self) -> None:
        end = time.monotonic() + min(self.timeout or _SECONDS, _SECONDS)
        name, host, port, authorization = self._proxy
        try:
            stream = socket.create_connection((host, port), _left(end))
        except OSError as error:
            raise Error(f"the proxy {name} could not be reached: {error}") from error
        try:
            _open(stream, name, f"[{self.host}]" if ":" in self.host else self.host, self.port, authorization, end)
            stream.settimeout(self.timeout)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock = self._tls.wrap_socket(stream, server_hostname=self.host)
        except BaseException:
            stream.close()
            raise


def _open(stream: socket.socket, name: str, host: str, port: int, authorization: str | None, end: float) -> None:
    """Has the proxy connect to the server.

    :raises Error: with the proxy's name, if it does not.
    """
    credentials = f"Proxy-Authorization: {authorization}\r\n" if authorization else ""
    head = b""
    try:
        stream.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{credentials}\r\n".encode("latin-1"))
        while b"\r\n\r\n" not in head and len(head) < _HEAD_BYTES:
            stream.settimeout(_left(end))
            more = stream.recv(_HEAD_BYTES - len(head))
            if not more:
                break
            head += more
    except TimeoutError:
        raise Error(f"the proxy {name} did not answer in time; is that the address of an HTTP proxy?") from None
    except OSError as error:
        raise Error(f"the proxy {name} ended the connection: {error}") from error
    status = re.match(rb"HTTP/1\.[01] (\d{3})(?: ([ -~]{0,100})[^\r\n]*)?\r\n", head)
    if status is None or b"\r\n\r\n" not in head:
        raise Error(f"the proxy {name} sent no valid HTTP response; is that the address of an HTTP proxy?")
    code, reason = int(status[1]), (status[2] or b"").decode()
    if code == 407:
        why = "does not accept the name and the password in its address" if authorization else "requires a name and a password"
        raise Error(f"the proxy {name} answered 407 {reason}; it {why} (http://USER:PASSWORD@HOST:PORT, method Basic)")
    if not 200 <= code < 300:
        raise Error(f"the proxy {name} answered {code} {reason}; its rules have to allow CONNECT to {host}:{port}")
    # In TLS, the client sends first.
    if head.index(b"\r\n\r\n") + 4 != len(head):
        raise Error(f"the proxy {name} sent data before the TLS handshake; is that the address of an HTTP proxy?")


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
