"""A socket behind which a function answers, command by command."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from remoting.frame.command import RemotingCommand
from remoting.frame.connection import RemotingConnection


@contextmanager
def answering(answer: Callable[[RemotingCommand], RemotingCommand | None]) -> Iterator[str]:
    """Its address. None for an answer closes the connection. Answers come one at a time."""
    lock = threading.Lock()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            incoming = RemotingConnection()
            while data := self.request.recv(1 << 16):
                for command in incoming.receive_data(data):
                    with lock:
                        answered = answer(command)
                    if answered is None:
                        return
                    self.request.sendall(answered.encode())

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
