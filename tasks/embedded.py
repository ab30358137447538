"""A broker for the first run, with no server installed: fakeredis behind a TCP port, as a process of its own.

::

    python -m tasks.embedded --ready-file broker.url

It listens on the loopback alone, on a port that the system chooses, without a password: whoever has an account on the
machine can reach it. It keeps nothing: when its process ends its messages are gone, and the reaper publishes them again
from the store. For a fleet of more than one machine, or one that matters, run a Redis.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from socketserver import ThreadingTCPServer

import click

from adk_worker.errors import ConfigurationError

HOST = "127.0.0.1"


class EmbeddedBroker:
    """The server, and its address. ``port`` 0 takes a free one.

    :raises ConfigurationError: fakeredis is not installed.
    :raises OSError: the port is taken.
    """

    def __init__(self, port: int = 0) -> None:
        self._server = _make_server(port)

    @property
    def url(self) -> str:
        """What ``ADK_BROKER_URL`` has to be."""
        return f"redis://{HOST}:{self._server.server_address[1]}/0"

    def serve(self) -> None:
        """Serve until :meth:`stop`."""
        with self._server:
            self._server.serve_forever()

    def stop(self) -> None:
        """End :meth:`serve`; from another thread."""
        self._server.shutdown()

    def close(self) -> None:
        """Give up the port without having served."""
        self._server.server_close()


def _make_server(port: int) -> ThreadingTCPServer:
    try:
        # Only whoever serves the broker needs them. The handler is private to fakeredis, whose releases are pinned for
        # that, and a test says what we use of it.
        from fakeredis import TcpFakeServer  # noqa: PLC0415
        from fakeredis._clients._tcp_server import TCPFakeRequestHandler  # noqa: PLC0415
    except ImportError as error:
        raise ConfigurationError(
            f"the embedded broker cannot start: {error}. Install it with: pip install 'adk-worker[embedded]'"
        ) from error

    class Handler(TCPFakeRequestHandler):
        # Its sockets would wait for more to send, a tenth of a second in every hop of a message.
        disable_nagle_algorithm = True

    server: ThreadingTCPServer = TcpFakeServer((HOST, port))
    server.RequestHandlerClass = Handler
    # Connections of workers that are still there must not keep the process alive.
    server.daemon_threads = True
    server.block_on_close = False
    return server


def publish_address(url: str, ready_file: Path) -> None:
    """Write ``url`` so that a reader finds all of it or no file at all."""
    unfinished = ready_file.with_name(f"{ready_file.name}.{os.getpid()}")
    unfinished.write_text(url + "\n")
    unfinished.replace(ready_file)


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on; a free one by default.")
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the broker's URL once it listens.",
)
@click.option("--until-stdin-ends", is_flag=True, help="End when standard input does: together with who started this.")
def main(port: int, ready_file: Path | None, *, until_stdin_ends: bool) -> None:
    """Serve a broker on the loopback until SIGTERM or Ctrl-C."""
    try:
        broker = EmbeddedBroker(port)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot listen on {HOST}:{port}: {error.strerror}.") from error

    def end(*_: object) -> None:
        # `stop` waits for the loop that this handler interrupts.
        threading.Thread(target=broker.stop, daemon=True).start()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    if until_stdin_ends:
        threading.Thread(target=_end_with_stdin, args=(broker,), daemon=True).start()
    if ready_file is not None:
        publish_address(broker.url, ready_file)
    click.echo(f"ready: {broker.url}")
    broker.serve()


def _end_with_stdin(broker: EmbeddedBroker) -> None:
    while sys.stdin.buffer.read(4096):
        pass
    broker.stop()


if __name__ == "__main__":
    main()
