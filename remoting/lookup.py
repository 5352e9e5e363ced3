"""What a host's name leads to on this machine now. Blocks while DNS is asked, so it is for the start of a process."""

from __future__ import annotations

import socket
from collections.abc import Callable

# The IP addresses of a host, the one to take first; none if it leads nowhere.
LookUp = Callable[[str], list[str]]


def ip_addresses(host: str) -> list[str]:
    """IPv4 addresses come first, as in Java. An IP address leads to itself."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return sorted(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found), key=lambda ip: ":" in ip)


def own_address() -> str | None:
    """By which other machines reach this one; None if there is no way to them. Nothing is sent."""
    for family, elsewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))  # an address of documentations; connecting sends nothing
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return None
