"""Start of the servers with RocketMQ's flags: `mqnamesrv`, `mqbroker` and `mqproxy`.

argparse alone, and no import of anything that a server does not need: four of these processes are the memory of a
small cluster. `mq namesrv`, `mq broker` and `mq proxy` become these same processes.
"""

from __future__ import annotations

import argparse
import errno
import gc
import logging
import resource
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import uvloop

from mq.log_limit import ConnectionLogLimit
from remoting.configuration import ConfigError, format_properties
from remoting.errors import RemotingBodyError
from remoting.tls import TlsError

EXIT_FAILED = 1
EXIT_WRONG_USE = 2

_ONE_DASH = frozenset(
    {
        "-configFile",
        "-help",
        "-namesrvAddr",
        "-printConfigItem",
        "-printImportantConfig",
        "-proxyConfigPath",
        "-proxyMode",
    }
)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

log = logging.getLogger("mq.server_entry")


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        _wrong_use(self.prog, f"{message}; --help lists the options")


def namesrv(arguments: Sequence[str] | None = None) -> None:
    """Runs a NameServer until SIGTERM or SIGINT. Exit status 2: the configuration cannot be used; 1: it failed."""
    parser = _Parser(prog="mqnamesrv", description="A RocketMQ NameServer: the registry of routes.")
    _add_common_flags(parser)
    parser.add_argument("-n", "--namesrvAddr", metavar="ADDR", help="without effect, as with RocketMQ")
    parser.add_argument("--host", help="address to listen on (conf: bindAddress; default 0.0.0.0)")
    parser.add_argument("--port", type=int, help="port to listen on (conf: listenPort; default 9876)")
    options, notes = _parse(parser, arguments, "--port and --host set where a NameServer listens")
    if options.namesrvAddr is not None:
        notes.append("-n has no effect on a NameServer, as with RocketMQ: NameServers do not know each other")
    from namesrv.namesrv import run_namesrv
    from namesrv.namesrv_config import load_namesrv_config, shown_settings

    given = {"bindAddress": options.host, "listenPort": options.port}
    overrides = {key: str(value) for key, value in given.items() if value is not None}
    try:
        config, warnings = load_namesrv_config(options.config, overrides)
    except (ConfigError, OSError) as error:
        _wrong_use("mqnamesrv", error)
    shown = shown_settings(config) if options.print_config else None
    _set_up("mqnamesrv", [*notes, *warnings], shown)
    _run("mqnamesrv", run_namesrv(config), "kvConfigPath")


def broker(arguments: Sequence[str] | None = None) -> None:
    """Runs a broker until SIGTERM or SIGINT. Exit status as `namesrv`."""
    parser = _Parser(prog="mqbroker", description="A RocketMQ broker: plain, or a member of a DLedger group.")
    _add_common_flags(parser)
    parser.add_argument(
        "-n", "--namesrvAddr", metavar="ADDR", help="NameServers: host:port, several joined by ;"
    )
    parser.add_argument(
        "-m",
        "--printImportantConfig",
        dest="print_important",
        action="store_true",
        help="print the settings in effect that RocketMQ calls important, and end",
    )
    parser.add_argument(
        "--enable-proxy",
        dest="proxy",
        action="store_true",
        help="start a gRPC proxy, as a process beside the broker: when one ends, so does the other; with it, "
        "-pc FILE is the proxy's conf",
    )
    given = sys.argv[1:] if arguments is None else arguments
    if "--enable-proxy" in given:  # without it, -pc is -p and -c, as with RocketMQ
        _add_proxy_flags(parser)
    options, notes = _parse(parser, arguments, "put it into the conf file (-c)")
    from broker.config.broker_settings import IMPORTANT_KEYS
    from broker.config.config_file import load_broker_config, shown_settings
    from broker.server import run_broker

    overrides = {"namesrvAddr": options.namesrvAddr} if options.namesrvAddr else {}
    try:
        config, warnings = load_broker_config(options.config, overrides)
    except (ConfigError, OSError) as error:
        _wrong_use("mqbroker", error)
    shown = None
    if options.print_config:
        shown = shown_settings(config)
    elif options.print_important:
        shown = {key: value for key, value in shown_settings(config).items() if key in IMPORTANT_KEYS}
    proxy_arguments = _proxy_arguments(options, config.namesrv_addr) if options.proxy else None
    _set_up("mqbroker", [*notes, *warnings], shown)
    if proxy_arguments is None:
        _run("mqbroker", run_broker(config), "storePathRootDir")
        return
    from mq.proxy_beside import beside_proxy

    _run("mqbroker", beside_proxy(run_broker(config), proxy_arguments), "storePathRootDir")


def _proxy_arguments(options: argparse.Namespace, namesrv_addr: Sequence[str]) -> list[str]:
    """Of `mqproxy`, beside a broker with these options."""
    from mq.proxy_beside import missing_library

    if (name := missing_library()) is not None:
        _wrong_use("mqbroker", f"--enable-proxy: {_missing(name)}")
    if not namesrv_addr:
        _wrong_use("mqbroker", "--enable-proxy needs a NameServer: give -n HOST:PORT")
    conf = ["-pc", options.proxy_config] if options.proxy_config is not None else []
    return ["-n", ";".join(namesrv_addr), *conf]


def proxy(arguments: Sequence[str] | None = None) -> None:
    """Runs a gRPC proxy until SIGTERM or SIGINT. Exit status as `namesrv`."""
    parser = _Parser(
        prog="mqproxy",
        description="A gRPC proxy: RocketMQ's 5.x clients speak to it, and it speaks to brokers, ours or RocketMQ's.",
    )
    parser.add_argument(
        "-n", "--namesrvAddr", metavar="ADDR", help="NameServers: host:port, several joined by ;"
    )
    _add_proxy_flags(parser)
    parser.add_argument("--host", help="address to listen on (conf: pyDLedgerBindAddress; default 0.0.0.0)")
    parser.add_argument("--port", type=int, help="port to listen on (conf: grpcServerPort; default 8081)")
    parser.add_argument(
        "--advertise",
        metavar="HOST:PORT",
        help="where clients find this proxy, or a balancer in front of it (conf: pyDLedgerAdvertisedEndpoint; "
        "default: the address that they were given)",
    )
    parser.add_argument("--beside", action="store_true", help=argparse.SUPPRESS)
    _add_print_flag(parser)
    options, notes = _parse(parser, arguments, "put it into the conf file (-pc)")
    try:
        from proxy.config import load_proxy_config, shown_settings
        from proxy.server import run_proxy, tls_of
    except ModuleNotFoundError as error:
        _wrong_use("mqproxy", _missing(error.name))
    given = {
        "namesrvAddr": options.namesrvAddr,
        "proxyMode": options.proxy_mode,
        "pyDLedgerBindAddress": options.host,
        "grpcServerPort": options.port,
        "pyDLedgerAdvertisedEndpoint": options.advertise,
    }
    overrides = {key: str(value) for key, value in given.items() if value is not None}
    try:
        config, warnings = load_proxy_config(options.proxy_config, overrides)
    except (ConfigError, OSError) as error:
        _wrong_use("mqproxy", error)
    shown = shown_settings(config) if options.print_config else None
    _set_up("mqproxy", [*notes, *warnings], shown)
    try:
        tls = tls_of(config)
    except TlsError as error:
        _wrong_use("mqproxy", error)
    _run("mqproxy", run_proxy(config, tls, is_beside_broker=options.beside), "tlsKeyPath")


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m mq.server_entry namesrv|broker|proxy …`: how the cluster command starts its processes."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    servers = {"namesrv": namesrv, "broker": broker, "proxy": proxy}
    if not given or given[0] not in servers:
        _wrong_use("mq.server_entry", "name a server first: namesrv, broker or proxy")
    gc.disable()  # while it is loaded: there is nothing to collect
    servers[given[0]](given[1:])


def _add_common_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--configFile", dest="config", metavar="FILE", help="conf file in RocketMQ's format"
    )
    _add_print_flag(parser)


def _add_print_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-p",
        "--printConfigItem",
        dest="print_config",
        action="store_true",
        help="print the settings in effect, and end",
    )


def _add_proxy_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-pc",
        "--proxyConfigPath",
        dest="proxy_config",
        metavar="FILE",
        help="the proxy's conf file, as RocketMQ's rmq-proxy.json",
    )
    parser.add_argument(
        "-pm",
        "--proxyMode",
        dest="proxy_mode",
        metavar="MODE",
        help="cluster, the only one: a broker and a proxy are two processes",
    )


def _parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, advice: str
) -> tuple[argparse.Namespace, list[str]]:
    """Options, and a warning for each word that is none, which RocketMQ passes over. `advice`: where it belongs."""
    given = sys.argv[1:] if arguments is None else arguments
    # RocketMQ takes long options behind one dash as well.
    spelt = [f"-{word}" if word.partition("=")[0] in _ONE_DASH else word for word in given]
    options, others = parser.parse_known_args(spelt)
    for word in others:
        if word.startswith("-"):
            parser.error(f"unknown option {word}")
    return options, [f"{word} has no effect here, as with RocketMQ: {advice}" for word in others]


def _missing(library: str | None) -> str:
    return f"{library} is missing: pip install 'pydledger[proxy]'"


def _set_up(program: str, warnings: Sequence[str], to_print: Mapping[str, str] | None) -> None:
    """Prints `to_print` and ends, if there is any."""
    if to_print is not None:
        for warning in warnings:
            print(f"{program}: {warning}", file=sys.stderr)
        sys.stdout.write(format_properties(to_print.items()))
        raise SystemExit(0)
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(ConnectionLogLimit())
    logging.basicConfig(
        level=logging.INFO, handlers=[handler], format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    for warning in warnings:
        log.warning("%s: %s", program, warning)


def _raise_open_files() -> None:
    """To what this user may have, as a JVM does: many machines give a process 1,024 unless it asks for more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _run(program: str, server: Coroutine[Any, Any, None], path_key: str) -> None:
    """`path_key`: of the setting that says where the server writes."""
    # What is loaded by now stays for good: a full collection that looked at all of it would hold up every send.
    gc.freeze()
    gc.enable()
    _raise_open_files()
    try:
        uvloop.run(server)
    except KeyboardInterrupt:
        log.info("%s: interrupted", program)
    except TlsError as error:
        log.error("%s: %s", program, error)
        raise SystemExit(EXIT_WRONG_USE) from None
    except RemotingBodyError as error:
        log.error("%s: %s: put the file back from a copy, or remove it", program, error)
        raise SystemExit(EXIT_FAILED) from None
    except OSError as error:
        # A port that is taken, a directory that cannot be written: the text says it, a stack adds nothing.
        log.error("%s: %s", program, _cause_and_cure(error, path_key))
        raise SystemExit(EXIT_FAILED) from None


def _cause_and_cure(error: OSError, path_key: str) -> str:
    reason = error.strerror or str(error)
    if error.filename is not None and error.errno in _NO_ROOM:
        return f"{error.filename}: {reason}: make room there and start again, nothing is lost"
    if error.filename is not None and error.errno == errno.EIO:
        return f"{error.filename}: {reason}: have another disk there; a member of a group may start on an empty one"
    if error.filename is not None:
        return f"{error.filename}: {reason}: have {path_key} name a place that this user can write to"
    if error.errno == errno.EADDRINUSE:
        return f"{reason}: configure another port, or end the process that has it (ss -ltnp shows it)"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{reason}: bindAddress must be an address of this machine, 0.0.0.0 is all of them"
    if error.errno == errno.EACCES:
        return f"{reason}: ports below 1024 are the superuser's, configure another one"
    return reason


def _wrong_use(program: str, error: object) -> NoReturn:
    if isinstance(error, OSError):
        error = f"{error.filename}: {error.strerror}: name a conf file that can be read"
    print(f"{program}: {error}", file=sys.stderr)
    raise SystemExit(EXIT_WRONG_USE)


if __name__ == "__main__":
    main()
