"""`mq cluster …`: a whole cluster on this machine, started and broken by hand or by tests."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from mq.cluster import Cluster, ClusterError
from mq.cluster_layout import ClusterLayout, lines_with_earlier, parse_conf_line, parse_peer_dial
from mq.cluster_status import cluster_status
from mq.console import print_json, print_table, user_errors
from remoting.configuration import TLS_FILE_VARIABLE
from remoting.tls import TlsError

SERVING_TIMEOUT_S = 30.0

app = typer.Typer(
    no_args_is_help=True, help="A cluster of real processes on this machine: start, look, break, end."
)

DirOption = Annotated[
    Path, typer.Option("--dir", help="Where the cluster's conf files, logs, data and state are.")
]
NodeArgument = Annotated[str, typer.Argument(help="n0, n1, …; also namesrv, proxy.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON and nothing else.")]
DEFAULT_DIR = Path("run/cluster")


@app.command()
def up(
    nodes: Annotated[int, typer.Option(help="Brokers of each group.")] = 3,
    groups: Annotated[int, typer.Option(help="Replica groups.")] = 1,
    directory: DirOption = DEFAULT_DIR,
    base_port: Annotated[
        int, typer.Option(help="NameServer's port; proxy: +1; broker k: +10+10k, Raft +15, HTTP +16.")
    ] = 9876,
    proxy: Annotated[
        bool,
        typer.Option(
            "--proxy", help="And a gRPC proxy, for RocketMQ's 5.x clients. It stays at the next up."
        ),
    ] = False,
    tls: Annotated[
        bool,
        typer.Option("--tls", help="TLS on all ports, with certificates made here. It stays at the next up."),
    ] = False,
    peer_dial: Annotated[
        list[str] | None, typer.Option(metavar="FROM:TO=HOST:PORT", help="FROM reaches TO's Raft port there.")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="key=value",
            help="A line for every broker's conf file. It stays at the next up; key= takes it out.",
        ),
    ] = None,
) -> None:
    """Start what is not running, and return when each group serves."""
    began = time.monotonic()
    with user_errors(ClusterError, TlsError):
        given = dict(map(parse_conf_line, conf or ()))
        earlier = Cluster.conf_of(directory.resolve())
        layout = ClusterLayout(
            dir=str(directory.resolve()),
            nodes_per_group=nodes,
            groups=groups,
            base_port=base_port,
            peer_dials=dict(map(parse_peer_dial, peer_dial or ())),
            conf=lines_with_earlier(given, earlier),
            proxy=proxy,
            tls=tls,
        )
        if kept := [f"--conf {key}={value}" for key, value in earlier.items() if key not in given]:
            print(f"kept from the last up (--conf key= takes one out): {' '.join(kept)}", file=sys.stderr)
        cluster = Cluster.up(layout)
        from mq.cluster_wait import wait_serving

        wait_serving(cluster, SERVING_TIMEOUT_S)
    took_s = time.monotonic() - began
    layout = cluster.layout
    shown_proxy = f", gRPC proxy {layout.proxy_address}" if layout.proxy else ""
    print(
        f"serving after {took_s:.1f} s: NameServer {layout.namesrv}{shown_proxy}, {len(layout.nodes)} brokers "
        f"in {layout.dir}"
    )
    if layout.client_tls_file is not None:
        print(f"TLS: export {TLS_FILE_VARIABLE}={layout.client_tls_file}")


@app.command()
def status(directory: DirOption = DEFAULT_DIR, as_json: JsonOption = False) -> None:
    """What each member says about itself."""
    with user_errors(ClusterError):
        told = cluster_status(_cluster(directory))
    if as_json:
        print_json(told)
        return
    nodes = told["nodes"]
    columns = (
        "id",
        "group",
        "pid",
        "role",
        "serving",
        "term",
        "leader",
        "ledger_end",
        "committed",
        "applied",
        "listen",
    )
    title = f"NameServer {told['namesrv']}"
    if told["namesrv_pid"] is None:
        title += " (DOWN)"
    if told["proxy"] is not None:
        title += f", gRPC proxy {told['proxy']}" + (" (DOWN)" if told["proxy_pid"] is None else "")
    rows = [_row(node, columns) for node in nodes]
    # With one group its name says the least; with several it says whose leader a member is.
    one_group = ("group",) if len({node["group"] for node in nodes}) == 1 else ()
    dispensable = (*one_group, "pid", "applied", "serving", "ledger_end", "listen")
    print_table(title, columns, rows, dispensable=dispensable)
    for node in nodes:
        for remark in node["remarks"]:
            print(f"{node['id']}: {remark}")


@app.command()
def kill(node: NodeArgument, directory: DirOption = DEFAULT_DIR) -> None:
    """SIGKILL: the process ends as in a crash; the page cache keeps what it wrote."""
    with user_errors(ClusterError):
        _cluster(directory).kill(node)


@app.command()
def pause(node: NodeArgument, directory: DirOption = DEFAULT_DIR) -> None:
    """SIGSTOP: connections stay open, nobody answers."""
    with user_errors(ClusterError):
        _cluster(directory).pause(node)


@app.command()
def resume(node: NodeArgument, directory: DirOption = DEFAULT_DIR) -> None:
    """SIGCONT: goes on after a pause."""
    with user_errors(ClusterError):
        _cluster(directory).resume(node)


@app.command()
def stop(node: NodeArgument, directory: DirOption = DEFAULT_DIR) -> None:
    """SIGTERM: a clean stop; returns when it has ended."""
    with user_errors(ClusterError):
        _cluster(directory).stop(node)


@app.command()
def start(node: NodeArgument, directory: DirOption = DEFAULT_DIR) -> None:
    """Start a stopped or killed member again, on its own data."""
    with user_errors(ClusterError):
        _cluster(directory).start(node)


@app.command()
def logs(
    node: NodeArgument,
    directory: DirOption = DEFAULT_DIR,
    lines: Annotated[int, typer.Option(min=0, help="From the end.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")] = False,
) -> None:
    """The end of a member's log."""
    with user_errors(ClusterError):
        path = _cluster(directory).log_file(node)
        if not path.exists():
            raise ClusterError(f"{node} has no log yet ({path})")
    arguments = ["tail", "-n", str(lines), *(["-F"] if follow else []), str(path)]
    try:
        raise typer.Exit(subprocess.run(arguments, check=False).returncode)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@app.command()
def secret() -> None:
    """Print a new cluster secret, for pyDLedgerClusterSecret in the confs of all members of a group."""
    print(secrets.token_hex(32))


@app.command()
def down(directory: DirOption = DEFAULT_DIR) -> None:
    """End every process of this cluster, and only those. Data, conf files and logs stay."""
    with user_errors(ClusterError):
        killed = _cluster(directory).down()
    if killed:
        print(f"killed, as they did not end on SIGTERM: {', '.join(killed)}", file=sys.stderr)


def _cluster(directory: Path) -> Cluster:
    return Cluster.load(directory.resolve())


def _row(node: dict[str, Any], columns: tuple[str, ...]) -> list[object]:
    # Ids, terms and ports are names, not amounts: no thousands separators, no right side.
    return [
        str(node[name]) if name in ("pid", "term") and node[name] is not None else node[name]
        for name in columns
    ]
