"""The files of a small authority for one cluster: its own, those of each host and of clients, and properties files.

A properties file has RocketMQ's keys and absolute paths, so that a server of ours, `mq` and a Java client read the same
one. The authority's key stays where it was made; nobody needs it to serve or to connect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from remoting.address import check_host
from remoting.certificates import Authority, own_names
from remoting.tls import TlsError, TlsFiles

AUTHORITY: Final = "ca"
CLIENT: Final = "client"
AUTHORITY_DAYS: Final = 3650
DAYS: Final = 365


class TlsDirectory:
    """Invariant: what is there already is never written again, unless it is to be renewed; the authority never is."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    def files(self, name: str) -> TlsFiles:
        return TlsFiles(
            key_path=str(self.directory / f"{name}.key"), cert_path=str(self.directory / f"{name}.crt")
        )

    def properties_file(self, name: str) -> Path:
        return self.directory / f"{name}.properties"

    def make(
        self, servers: Iterable[Sequence[str]], *, days: int = DAYS, renews: bool = False
    ) -> dict[str, bool]:
        """Make what is missing. `servers`: of each server its names, the first of which names the files; none: this
        machine. Returns the names, and which of them were made now.

        Raises TlsError, AddressError for a host that is none, OSError.
        """
        wanted = {names[0]: list(names) for names in servers} or {"localhost": own_names()}
        for first, names in wanted.items():
            if first in (AUTHORITY, CLIENT):
                raise TlsError(f"{first}.crt is not a server's here: give another of its names first")
            for name in names:
                check_host(name)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        files = self.files(AUTHORITY)
        is_new = not Path(files.cert_path).exists()
        if is_new:
            authority = Authority.make(f"PyDLedger cluster {self.directory.name}", AUTHORITY_DAYS)
            authority.write(files)
        else:
            authority = Authority.load(files)
        made = {AUTHORITY: is_new}
        for name, hosts in {**wanted, CLIENT: []}.items():
            own = self.files(name)
            made[name] = is_new or renews or not Path(own.cert_path).exists()
            if made[name]:
                authority.issue(own, name, days, hosts)
            self.properties_file(name).write_text(self._properties(own, is_server=bool(hosts)))
        return made

    def _properties(self, files: TlsFiles, *, is_server: bool) -> str:
        trust = self.files(AUTHORITY).cert_path
        server = {
            "tls.server.keyPath": files.key_path,
            "tls.server.certPath": files.cert_path,
            "tls.server.trustCertPath": trust,
        }
        lines = {
            "tls.test.mode.enable": "false",
            **(server if is_server else {}),
            "tls.client.keyPath": files.key_path,
            "tls.client.certPath": files.cert_path,
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": trust,
        }
        return "".join(f"{key}={value}\n" for key, value in lines.items())
