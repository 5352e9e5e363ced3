"""All commands of `mq`, but for those of `mq admin`, which has an order of its own (mq/admin/__main__.py)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

# Where a command is: its function has its name, and a group of commands is the module's `app`.
COMMANDS = {
    **{name: f"mq.{name}" for name in ("produce", "consume")},
    "validate": "mq.proving.validate",
    "quickstart": "mq.quickstart.command",
}
GROUPS = {
    "cluster": "mq.cluster_commands",
    "export": "mq.proving.export",
    "store": "mq.store",
    "tls": "mq.tls_commands",
}

ConfigOption = Annotated[Path | None, typer.Option("-c", "--config", help="Conf file in RocketMQ's format.")]
PrintOption = Annotated[bool, typer.Option("-p", "--print-config", help="Print what is in effect and end.")]


def namesrv(
    config: ConfigOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: as the conf file says, or 9876.")] = 0,
    print_config: PrintOption = False,
) -> None:
    """Run a NameServer here, until Ctrl-C."""
    arguments = [*(["--host", host] if host else []), *(["--port", str(port)] if port else [])]
    _become_server("namesrv", config, arguments, print_config=print_config)


def broker(
    config: ConfigOption = None,
    namesrv_addr: Annotated[
        str, typer.Option("-n", "--namesrv", metavar="ADDR", help="Wins over the file.")
    ] = "",
    print_config: PrintOption = False,
) -> None:
    """Run a broker here, until Ctrl-C."""
    _become_server("broker", config, ["-n", namesrv_addr] if namesrv_addr else [], print_config=print_config)


def proxy(
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", help="Conf file in the format of RocketMQ's rmq-proxy.json."),
    ] = None,
    namesrv_addr: Annotated[
        str, typer.Option("-n", "--namesrv", metavar="ADDR", help="NameServers; wins over the file.")
    ] = "",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: as the conf file says, or 8081.")] = 0,
    print_config: PrintOption = False,
) -> None:
    """Run a gRPC proxy here, for RocketMQ's 5.x clients, until Ctrl-C."""
    arguments = [
        *(["-pc", str(config)] if config else []),
        *(["-n", namesrv_addr] if namesrv_addr else []),
        *(["--port", str(port)] if port else []),
    ]
    _become_server("proxy", None, arguments, print_config=print_config)


def _become_server(name: str, config: Path | None, arguments: list[str], *, print_config: bool) -> None:
    """This process turns into the server, which then carries nothing of the command line's libraries."""
    arguments = [*(["-c", str(config)] if config else []), *arguments, *(["-p"] if print_config else [])]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "mq.server_entry", name, *arguments])


def admin() -> None:
    """Look at a cluster and change it: RocketMQ's mqadmin without a JVM."""
    raise AssertionError("mq/__main__.py does this one")


SERVERS: dict[str, Callable[..., None]] = {"namesrv": namesrv, "broker": broker, "proxy": proxy}


def make_app(wanted: str | None = None) -> typer.Typer:
    """All commands; with the name of one, without the others' libraries, which take longer to load than it works."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="PyDLedger: a RocketMQ-compatible broker cluster with a Raft-replicated log.",
    )
    is_known = wanted in {*COMMANDS, *GROUPS, *SERVERS}
    for name in (*COMMANDS, *GROUPS):
        if is_known and name != wanted:
            continue
        if name in COMMANDS:
            app.command()(getattr(import_module(COMMANDS[name]), name))
        else:
            app.add_typer(import_module(GROUPS[name]).app, name=name)
    for here in (*SERVERS.values(), admin):
        app.command()(here)
    return app
