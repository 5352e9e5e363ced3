"""Start of the two servers with RocketMQ's flags: `mqnamesrv` and `mqbroker`.

argparse alone, and no import of anything that a server does not need: four of these processes are the memory of a
small cluster. `mq namesrv` and `mq broker` become these same processes.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NoReturn

import uvloop

from remoting.configuration import ConfigError, Setting, format_properties

EXIT_FAILED = 1
EXIT_WRONG_USE = 2

log = logging.getLogger("mq.server_entry")


def namesrv(arguments: Sequence[str] | None = None) -> None:
    """Runs a NameServer until SIGTERM or SIGINT. Exit status 2: the configuration cannot be used; 1: it failed."""
    parser = argparse.ArgumentParser(
        prog="mqnamesrv", description="A RocketMQ NameServer: the registry of routes."
    )
    _add_common_flags(parser)
    parser.add_argument("--host", help="address to listen on (conf: bindAddress; default 0.0.0.0)")
    parser.add_argument("--port", type=int, help="port to listen on (conf: listenPort; default 9876)")
    options = parser.parse_args(arguments)
    from namesrv.namesrv import run_namesrv
    from namesrv.namesrv_config import NAMESRV_SETTINGS, load_namesrv_config

    given = {"bindAddress": options.host, "listenPort": options.port}
    overrides = {key: str(value) for key, value in given.items() if value is not None}
    try:
        config, warnings = load_namesrv_config(options.config, overrides)
    except (ConfigError, OSError) as error:
        _wrong_use("mqnamesrv", error)
    _set_up("mqnamesrv", options, warnings, _in_effect(NAMESRV_SETTINGS, config))
    _run("mqnamesrv", run_namesrv(config))


def broker(arguments: Sequence[str] | None = None) -> None:
    """Runs a broker until SIGTERM or SIGINT. Exit status as `namesrv`."""
    parser = argparse.ArgumentParser(
        prog="mqbroker", description="A RocketMQ broker: plain, or a member of a DLedger group."
    )
    _add_common_flags(parser)
    parser.add_argument("-n", "--namesrvAddr", metavar="ADDR", help="NameServers, host:port, several with ;")
    options = parser.parse_args(arguments)
    from broker.broker_config import (
        BROKER_SETTINGS,
        DLEDGER_SETTINGS,
        STORE_SETTINGS,
        load_broker_config,
    )
    from broker.server import run_broker

    overrides = {} if options.namesrvAddr is None else {"namesrvAddr": options.namesrvAddr}
    try:
        config, warnings = load_broker_config(options.config, overrides)
    except (ConfigError, OSError) as error:
        _wrong_use("mqbroker", error)
    tables = ((BROKER_SETTINGS, config), (DLEDGER_SETTINGS, config.dledger), (STORE_SETTINGS, config.store))
    _set_up(
        "mqbroker",
        options,
        warnings,
        [pair for settings, part in tables for pair in _in_effect(settings, part)],
    )
    _run("mqbroker", run_broker(config))


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m mq.server_entry namesrv|broker …`: how the cluster command starts its processes."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    servers = {"namesrv": namesrv, "broker": broker}
    if not given or given[0] not in servers:
        _wrong_use("mq.server_entry", "name a server first: namesrv or broker")
    servers[given[0]](given[1:])


def _add_common_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--configFile", dest="config", metavar="FILE", help="conf file in RocketMQ's format"
    )
    parser.add_argument(
        "-p",
        "--printConfigItem",
        dest="print_config",
        action="store_true",
        help="print what is in effect and end",
    )


def _in_effect(settings: Mapping[str, Setting], part: object) -> Iterable[tuple[str, object]]:
    """Keys whose setting has a field, with its value; the others were only checked."""
    return [
        (key, getattr(part, setting.field))
        for key, setting in settings.items()
        if hasattr(part, setting.field)
    ]


def _set_up(
    program: str,
    options: argparse.Namespace,
    warnings: Sequence[str],
    in_effect: Iterable[tuple[str, object]],
) -> None:
    if options.print_config:
        sys.stdout.write(format_properties((key, _as_text(value)) for key, value in in_effect))
        raise SystemExit(0)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    for warning in warnings:
        log.warning("%s: %s", program, warning)


def _run(program: str, server: Coroutine[Any, Any, None]) -> None:
    # What is loaded by now stays for good: a full collection that looked at all of it would hold up every send.
    gc.freeze()
    try:
        uvloop.run(server)
    except KeyboardInterrupt:
        log.info("%s: interrupted", program)
    except OSError as error:
        # A port that is taken, a directory that cannot be written: the text says it, a stack adds nothing.
        log.error("%s: %s", program, error)
        raise SystemExit(EXIT_FAILED) from None


def _as_text(value: object) -> str:
    """A value as it would stand in a conf file."""
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return ""
        case Enum():
            return str(value.value)
        case tuple():
            return ";".join(map(str, value))
        case Mapping():
            return ";".join(f"{key}={item}" for key, item in value.items())
        case _:
            return str(value)


def _wrong_use(program: str, error: object) -> NoReturn:
    if isinstance(error, OSError):
        error = f"{error.filename}: {error.strerror}: name a conf file that can be read with -c"
    print(f"{program}: {error}", file=sys.stderr)
    raise SystemExit(EXIT_WRONG_USE)


if __name__ == "__main__":
    main()
