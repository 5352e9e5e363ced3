"""What the members of a cluster say about themselves, asked over HTTP, beside what the machine says about them."""

from __future__ import annotations

import http.client
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from mq.cluster import Cluster
from mq.cluster_layout import HOST, NAMESRV, PROXY, NodeLayout
from remoting.security_switches import open_warning
from remoting.tls_settings import client_tls_from_file

# The first request has a broker load its HTTP server, which takes over a second on a busy machine. A member that lives
# and says nothing must not keep the others from being shown for much longer.
HTTP_TIMEOUT_S = 2.0
_FAULTY_SHOWN = 3  # ranges of one member
# What a member that does not answer cannot tell.
UNKNOWN: dict[str, Any] = {
    "serving": False,
    "term": None,
    "leader": None,
    "ledger_begin": None,
    "ledger_end": None,
    "committed": None,
    "applied": None,
    "synced": None,
    "reput": None,
    "watermarks": {},
    "chain_crc": None,
}

# What brokers of a former release do not say, while a cluster is upgraded member by member.
NOT_SAID: dict[str, Any] = {
    "voters": [],
    "learners": [],
    "membership_index": None,
    "faulty_ranges": [],
    "scrub": None,
    "disk_full": None,
    "disk_obstacle": None,
    "open_switches": [],
    "reput_behind": 0,
}


def cluster_status(cluster: Cluster) -> dict[str, Any]:
    """`role` of a member that does not answer: DOWN (no process), PAUSED (SIGSTOP) or UNREACHABLE. `remarks`: what of
    a member is not as it should be, in words.
    """
    nodes = cluster.layout.nodes
    with ThreadPoolExecutor(len(nodes)) as pool:
        statuses = list(pool.map(lambda node: node_status(cluster, node), nodes))
    for status in statuses:
        status["remarks"] = remarks(
            status, [other for other in statuses if other["group"] == status["group"]]
        )
    process = cluster.process(NAMESRV)
    proxy = cluster.process(PROXY)
    return {
        "namesrv": cluster.layout.namesrv,
        "namesrv_pid": process.pid if process is not None else None,
        "proxy": cluster.layout.proxy_address,
        "proxy_pid": proxy.pid if proxy is not None else None,
        "nodes": statuses,
    }


def node_status(cluster: Cluster, node: NodeLayout) -> dict[str, Any]:
    process = cluster.process(node.id)
    if process is None:
        told = UNKNOWN | {"role": "DOWN"}
    elif cluster.is_paused(node.id):
        told = UNKNOWN | {"role": "PAUSED"}
    else:
        told = _ask(node.http_port, cluster.layout.client_tls_file) or UNKNOWN | {"role": "UNREACHABLE"}
    return (
        NOT_SAID
        | told
        | {
            "id": node.id,
            "group": node.group,
            "pid": process.pid if process is not None else None,
            "listen": node.listen,
            "raft": node.raft,
            "http": node.http,
            "store_dir": str(node.store_dir),
        }
    )


def remarks(status: Mapping[str, Any], group: Sequence[Mapping[str, Any]]) -> list[str]:
    """`group`: the statuses of all of its members. A member that says nothing gets none: its role says so."""
    if status["term"] is None:
        return []
    found = []
    if status["failure"] is not None:
        found.append(f"failed: {status['failure']}")
    if status["waits_for"]:
        found.append(f"the group is not formed, it waits for {', '.join(status['waits_for'])}")
    elif not status["can_vote"]:
        found.append("does not vote: its vote could not be read")
    if status["id"] in status["learners"]:
        found.append("learner: it is brought up, and counts for nothing until then")
    elif status["voters"] and status["id"] not in status["voters"]:
        found.append("no member of the group by what its log says")
    if status["doubted"]:
        found.append("doubted: its vote alone makes no majority")
    if status["election_obstacle"] is not None:
        found.append(f"no leader: {status['election_obstacle']}")
    if status["disk_full"] is not None:
        found.append(f"sends are refused: {status['disk_full']}")
    elif status["disk_obstacle"] is not None:
        found.append(f"not fit to lead: {status['disk_obstacle']}")
    if status["faulty_ranges"]:
        ranges = [(faulty["first_index"], faulty["last_index"]) for faulty in status["faulty_ranges"]]
        shown = ", ".join(f"{first}..{last}" for first, last in ranges[:_FAULTY_SHOWN])
        more = f" and {len(ranges) - _FAULTY_SHOWN} more" if len(ranges) > _FAULTY_SHOWN else ""
        found.append(f"damaged entries: {shown}{more}")
    if status["role"] == "LEADER" and not status["serving"]:
        found.append("does not serve yet")
    committed = max(other["committed"] for other in group if other["committed"] is not None)
    if status["ledger_end"] < committed:
        found.append(f"{committed - status['ledger_end']:,} entries behind")
    if status["reput_behind"] > 0:
        found.append(f"{status['reput_behind']:,} entries to dispatch")
    if status["open_switches"]:
        found.append(open_warning(status["open_switches"]))
    return found


def _ask(port: int, tls_file: str | None) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection(HOST, port, timeout=HTTP_TIMEOUT_S)
    if tls_file is not None and (tls := client_tls_from_file(tls_file)) is not None:
        connection = http.client.HTTPSConnection(HOST, port, timeout=HTTP_TIMEOUT_S, context=tls.context)
    try:
        connection.request("GET", "/status")
        answer = connection.getresponse()
        value = orjson.loads(answer.read()) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, orjson.JSONDecodeError):
        return None
    finally:
        connection.close()
    return value if isinstance(value, dict) else None
