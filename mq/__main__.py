"""`mq`: the one front door."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from mq import admin, cluster_commands
from mq.consume import consume
from mq.produce import produce
from mq.quickstart import quickstart
from mq.validate import validate

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="PyDLedger: a RocketMQ-compatible broker cluster with a Raft-replicated log.",
)
app.command()(produce)
app.command()(consume)
app.command()(validate)
app.command()(quickstart)
app.add_typer(cluster_commands.app, name="cluster")
app.add_typer(admin.app, name="admin")

ConfigOption = Annotated[Path | None, typer.Option("-c", "--config", help="Conf file in RocketMQ's format.")]
PrintOption = Annotated[bool, typer.Option("-p", "--print-config", help="Print what is in effect and end.")]


@app.command()
def namesrv(
    config: ConfigOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: as the conf file says, or 9876.")] = 0,
    print_config: PrintOption = False,
) -> None:
    """Run a NameServer here, until Ctrl-C."""
    arguments = [*(["--host", host] if host else []), *(["--port", str(port)] if port else [])]
    _become_server("namesrv", config, arguments, print_config=print_config)


@app.command()
def broker(
    config: ConfigOption = None,
    namesrv_addr: Annotated[
        str, typer.Option("-n", "--namesrv", metavar="ADDR", help="Wins over the file.")
    ] = "",
    print_config: PrintOption = False,
) -> None:
    """Run a broker here, until Ctrl-C."""
    _become_server("broker", config, ["-n", namesrv_addr] if namesrv_addr else [], print_config=print_config)


def _become_server(name: str, config: Path | None, arguments: list[str], *, print_config: bool) -> None:
    """This process turns into the server, which then carries nothing of the command line's libraries."""
    arguments = [*(["-c", str(config)] if config else []), *arguments, *(["-p"] if print_config else [])]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "mq.server_entry", name, *arguments])


def main() -> None:
    app()


if __name__ == "__main__":
    main()
