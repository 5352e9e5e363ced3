"""`mq tls …`: the certificates of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mq.console import user_errors
from mq.tls_files import AUTHORITY, CLIENT, DAYS, TlsDirectory
from remoting.configuration import TLS_FILE_VARIABLE
from remoting.tls import TlsError
from remoting.tls_settings import CONFIG_FILE_KEY

app = typer.Typer(no_args_is_help=True, help="Certificates for TLS.")


@app.callback()
def tls() -> None:
    """A command of its own, so that `init` is one below it."""


@app.command()
def init(
    servers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="HOST[,HOST…]",
            help="A server, by all names and addresses at which it is dialled; default: this machine.",
        ),
    ] = None,
    directory: Annotated[Path, typer.Option("--dir", help="Where the files are to be.")] = Path("tls"),
    days: Annotated[int, typer.Option(min=1, help="For how long the certificates are good.")] = DAYS,
    renew: Annotated[
        bool, typer.Option("--renew", help="Make certificates anew that are there, by the same authority.")
    ] = False,
) -> None:
    """Make a small authority, a certificate for each server and one for clients. What is there already stays."""
    with user_errors(TlsError):
        files = TlsDirectory(directory)
        given = [[name.strip() for name in names.split(",") if name.strip()] for names in servers or ()]
        made = files.make([names for names in given if names], days=days, renews=renew)
    for name, is_new in made.items():
        print(f"{'made' if is_new else 'kept'}  {files.files(name).cert_path}")
    print(
        f"\nIn the conf of each server, with its own file:\n  {CONFIG_FILE_KEY}=FILE\n  tls.server.mode=enforcing"
    )
    for name in made:
        if name not in (AUTHORITY, CLIENT):
            print(f"  # {name}: {files.properties_file(name)}")
    print(f"For mq and mqclient:\n  export {TLS_FILE_VARIABLE}={files.properties_file(CLIENT)}")
    print(
        "For Java clients:\n"
        f"  -Dtls.enable=true -D{CONFIG_FILE_KEY}={files.properties_file(CLIENT)}\n"
        f"Keep {files.files(AUTHORITY).key_path} where no server is: it makes further certificates."
    )
