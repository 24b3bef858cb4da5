"""Participants and operators behind an HTTP proxy, which alone resolves the coordinator's name."""

import base64
import os
import pathlib
import socket
import tempfile
import threading
import time
import unittest
import unittest.mock

import tributary as tb
from federation import federation, line

NAME = "fl.site.test"
SERVER = f"https://{NAME}:8443"
AUTHORIZATION = "basic " + base64.b64encode(b"ward:s3cret").decode().lower()
REFUSED = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"


class Proxy:
    """Keeps the requests' heads, in lower case, and answers each as ``respond(stream)`` does."""

    def __init__(self, respond=lambda stream: stream.sendall(REFUSED)):
        self.heads = []
        self._respond = respond
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = f"http://ward:s3cret@{self.address}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(stream,), daemon=True).start()

    def _answer(self, stream):
        with stream:
            head = b""
            while b"\r\n\r\n" not in head and (more := stream.recv(4096)):
                head += more
            self.heads.append(head.decode().lower())
            try:
                self._respond(stream)
            except OSError:
                pass

    def close(self):
        self._listener.close()


def tunnel_to(port):
    """Connects each tunnel to this port of this machine."""

    def pump(source, sink):
        while more := source.recv(65536):
            sink.sendall(more)
        sink.shutdown(socket.SHUT_WR)

    def respond(stream):
        with socket.create_connection(("127.0.0.1", port)) as server:
            stream.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pump, args=(server, stream), daemon=True)
            back.start()
            pump(stream, server)
            back.join()

    return respond


def endless(stream):
    stream.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        stream.sendall(b"X-Filler: " + b"y" * 1000 + b"\r\n")


class Proxies(unittest.TestCase):
    def proxy(self, *respond):
        proxy = Proxy(*respond)
        self.addCleanup(proxy.close)
        return proxy

    def assert_asked(self, proxy, port=8443):
        self.assertTrue(proxy.heads)
        for head in proxy.heads:
            self.assertTrue(head.startswith(f"connect {NAME}:{port} http/1."), head)
            self.assertIn(AUTHORIZATION, head)

    def test_federation_trains_through_the_proxy(self):
        with federation(TRIBUTARY_HTTP_PUBLIC_NAMES=f'["localhost", "{NAME}"]') as running:
            port = int(running.url.rsplit(":", 1)[1])
            proxy = self.proxy(tunnel_to(port))
            server = f"https://{NAME}:{port}"
            with unittest.mock.patch.dict(os.environ, {"ALL_PROXY": proxy.url}):
                operator = tb.Operator(server, running.token, ca=running.ca)
            operator.create(line("behind", rounds=1))
            everybody = [running.options(f"ward-{index}", server=server, task="behind", proxy=proxy.url) for index in range(3)]

            def take_part(options):
                with tb.participant(**options) as me:
                    for task in me.tasks():
                        task.send(task.parameters, examples=10)

            threads = [threading.Thread(target=take_part, args=(options,)) for options in everybody]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
            self.assertEqual(operator.request("GET", "/v1/tasks/behind/rounds/1")["state"], "COMPLETED")
            self.assert_asked(proxy, port)
            self.assertGreater(len(proxy.heads), 3)
            # Listed hosts are reached directly.
            before = len(proxy.heads)
            with unittest.mock.patch.dict(os.environ, {"HTTPS_PROXY": proxy.url, "NO_PROXY": f"localhost:{port}"}):
                tb.Operator(running.url, running.token, ca=running.ca).tasks()
            self.assertEqual(len(proxy.heads), before)

    def test_tunnel_to_another_server_is_rejected(self):
        with federation() as other, federation() as running:
            proxy = self.proxy(tunnel_to(int(other.url.rsplit(":", 1)[1])))
            with self.assertRaisesRegex(tb.Error, "CERTIFICATE_VERIFY_FAILED"):
                tb.Operator("https://localhost", "token", ca=running.ca, proxy=proxy.url).tasks()

    def test_operator_names_what_a_proxy_does_wrong(self):
        answers = {
            "answered 407 Proxy Authentication Required; it does not accept": lambda stream: stream.sendall(REFUSED),
            "answered 503 Busy; its rules": lambda stream: stream.sendall(b"HTTP/1.1 503 Busy\r\n\r\n"),
            "sent no valid HTTP response": lambda stream: stream.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"),
            "sent data before": lambda stream: stream.sendall(b"HTTP/1.1 200 OK\r\n\r\nmore"),
            "did not answer in time": lambda stream: stream.recv(1),
        }
        for words, respond in answers.items():
            proxy = self.proxy(respond)
            operator = tb.Operator(SERVER, "token", proxy=proxy.url, timeout=2)
            with self.assertRaisesRegex(tb.Error, words) as raised:
                operator.tasks()
            self.assertIn(f"the proxy http://{proxy.address}", str(raised.exception))
            self.assertNotIn("s3cret", str(raised.exception))
            self.assert_asked(proxy)
        proxy = self.proxy(endless)
        with self.assertRaisesRegex(tb.Error, "sent no valid HTTP response|ended the connection"):
            tb.Operator(SERVER, "token", proxy=proxy.url).tasks()
        with self.assertRaisesRegex(tb.Error, "the proxy http://127.0.0.1:1 could not be reached"):
            tb.Operator(SERVER, "token", proxy="http://127.0.0.1:1").tasks()

    def test_participant_reports_the_status(self):
        proxy = self.proxy()
        with federation() as running, tempfile.TemporaryDirectory() as folder:
            said = []
            options = {**running.options("ward"), "server": SERVER, "journal": pathlib.Path(folder, "journal"), "proxy": proxy.url}
            with tb.participant(**options, on_event=lambda name, fields: said.append(f"{name} {fields}")):
                end = time.monotonic() + 30
                while not any("answered 407" in line for line in said):
                    self.assertLess(time.monotonic(), end, said)
                    time.sleep(0.05)
        self.assertNotIn("s3cret", str(said))
        self.assert_asked(proxy)

    def test_unusable_proxy_is_rejected_without_its_password(self):
        for scheme, words in [("socks5", "SOCKS"), ("https", "without TLS")]:
            with self.assertRaisesRegex(tb.ConfigurationError, words) as raised:
                tb.Operator(SERVER, "token", proxy=f"{scheme}://ward:s3cret@localhost")
            self.assertNotIn("s3cret", str(raised.exception))
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(tb.ConfigurationError, "SOCKS") as raised:
            tb.participant(SERVER, journal=pathlib.Path(folder, "journal"), proxy="socks5://ward:s3cret@localhost", token="t")
        self.assertNotIn("s3cret", str(raised.exception))
