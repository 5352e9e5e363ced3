"""What the options of all views over the wire have in common. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pyspark_dledger.option_values import OptionError, choice, number
from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.planning import TriggerLimits
from remoting.address import AddressError, parse_addresses

POLL_TIMEOUT_MS: Final = 120_000
# Where secrets are: a plan and a checkpoint show options.
ACCESS_OPTIONS: Final = ("namesrv", "credentialsFile", "tlsConfigFile")
OF_STREAMS: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")
VIEWS: Final = ("messages", "entries")


def view_of(options: Mapping[str, str]) -> str:
    """Raises OptionError."""
    return choice({name.lower(): value for name, value in options.items()}, "view", VIEWS)


def known_options(
    options: Mapping[str, str], known: Collection[str], of_others: Collection[str], *, is_stream: bool
) -> dict[str, str]:
    """By their names as they are written in `known`. `of_others`: those of batches for a stream, and the other way
    round. Raises OptionError.
    """
    written = {name.lower(): name for name in known}
    given = {}
    for name, value in options.items():
        if name.lower() not in written:
            raise OptionError(f"unknown option {name!r}: there are {', '.join(sorted(known))}")
        given[written[name.lower()]] = value
    for name in of_others:
        if name in given:
            where = "spark.read" if is_stream else "spark.readStream"
            raise OptionError(f"option {name} is for {where} alone: leave it out")
    return given


def cluster_access(given: Mapping[str, str]) -> ClusterAccess:
    """Of the options ACCESS_OPTIONS. Raises OptionError."""
    if "namesrv" not in given:
        raise OptionError("option namesrv is missing: write host:port, several joined by ;")
    files = {name: given.get(name, "").strip() for name in ("credentialsFile", "tlsConfigFile")}
    for name, path in files.items():
        if name in given and not path:
            raise OptionError(f"option {name} is empty: write the path of a file, or leave it out")
    return ClusterAccess(namesrv_addresses(given["namesrv"]), *files.values())


def trigger_limits(given: Mapping[str, str]) -> TriggerLimits:
    """Of the options OF_STREAMS. Raises OptionError."""
    return TriggerLimits(*(number(given, name, at_least=1) for name in OF_STREAMS))


def namesrv_addresses(text: str) -> tuple[str, ...]:
    """Of option namesrv. Raises OptionError."""
    form = "write host:port, several joined by ;"
    try:
        addresses = tuple(map(str, parse_addresses(text)))
    except AddressError as error:
        raise OptionError(f"option namesrv: {error}: {form}") from None
    if not addresses:
        raise OptionError(f"option namesrv is empty: {form}")
    return addresses
