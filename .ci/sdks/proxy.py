"""An HTTP proxy that wants a password and alone resolves fl.site.test: proxy.py PORT-OF-THE-COORDINATOR FILE-FOR-ITS-ADDRESS.

Prints the name of each server that it opens a tunnel to. Ends with 1 at a request that is none for this tunnel.
"""

import base64
import os
import socket
import sys
import threading

target = int(sys.argv[1])
expected = "basic " + base64.b64encode(b"ward:s3cret").decode()


def pump(source, sink):
    try:
        while more := source.recv(65536):
            sink.sendall(more)
        sink.shutdown(socket.SHUT_WR)
    except OSError:  # One side was killed, as the tests do.
        sink.close()


def answer(client):
    head = b""
    while b"\r\n\r\n" not in head:
        more = client.recv(4096)
        if not more:
            return
        head += more
    request, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines if line)}
    if request.split() != ["CONNECT", f"fl.site.test:{target}", "HTTP/1.1"] or headers.get("proxy-authorization", "").lower() != expected.lower():
        print(f"another request came: {request}", file=sys.stderr)
        os._exit(1)
    print(request, flush=True)
    server = socket.create_connection(("127.0.0.1", target))
    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    threading.Thread(target=pump, args=(server, client), daemon=True).start()
    pump(client, server)


listener = socket.create_server(("127.0.0.1", 0), backlog=100)
with open(sys.argv[2], "w") as file:
    file.write(f"127.0.0.1:{listener.getsockname()[1]}")
while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
