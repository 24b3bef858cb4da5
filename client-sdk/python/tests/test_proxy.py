"""Participants and operators behind an HTTP proxy, which alone resolves the coordinator's name."""

import base64
import pathlib
import socket
import tempfile
import threading
import time
import unittest

import tributary as tb
from federation import federation

SERVER = "https://fl.site.test:8443"
AUTHORIZATION = "basic " + base64.b64encode(b"ward:s3cret").decode().lower()


class Proxy:
    """Rejects each tunnel with 407 and keeps the requests' heads, in lower case."""

    def __init__(self):
        self.heads = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            with stream:
                head = b""
                while b"\r\n\r\n" not in head and (more := stream.recv(4096)):
                    head += more
                self.heads.append(head.decode().lower())
                stream.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    def close(self):
        self._listener.close()


class Proxies(unittest.TestCase):
    def setUp(self):
        self.proxy = Proxy()
        self.addCleanup(self.proxy.close)
        self.url = f"http://ward:s3cret@{self.proxy.address}"

    def assert_asked(self):
        self.assertTrue(self.proxy.heads)
        for head in self.proxy.heads:
            self.assertTrue(head.startswith("connect fl.site.test:8443 http/1."), head)
            self.assertIn(AUTHORIZATION, head)

    def test_operator_reports_the_status(self):
        operator = tb.Operator(SERVER, "token", proxy=self.url)
        with self.assertRaisesRegex(tb.Error, "407") as raised:
            operator.tasks()
        self.assertNotIn("s3cret", str(raised.exception))
        self.assert_asked()

    def test_participant_reports_the_status(self):
        with federation() as running, tempfile.TemporaryDirectory() as folder:
            said = []
            options = {**running.options("ward"), "server": SERVER, "journal": pathlib.Path(folder, "journal"), "proxy": self.url}
            with tb.participant(**options, on_event=lambda name, fields: said.append(f"{name} {fields}")):
                end = time.monotonic() + 30
                while not any("answered 407" in line for line in said):
                    self.assertLess(time.monotonic(), end, said)
                    time.sleep(0.05)
        self.assertNotIn("s3cret", str(said))
        self.assert_asked()

    def test_unusable_proxy_is_rejected_without_its_password(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(tb.ConfigurationError, "SOCKS") as raised:
            tb.participant(SERVER, journal=pathlib.Path(folder, "journal"), proxy="socks5://ward:s3cret@localhost", token="t")
        self.assertNotIn("s3cret", str(raised.exception))
