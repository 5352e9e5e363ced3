"""Ports for servers that have to know them before they listen."""

import random
import socket

# Below the kernel's range for outgoing connections (net.ipv4.ip_local_port_range): a port of that range may become
# the near end of anybody's connection before its server starts, even of one dialled to that very port.
# Clusters that other tests start have the blocks from 24,000 on.
# A broker also listens two below its port, for VIP channels: of every fourth port none is another's.
PORTS = range(12_000, 24_000, 4)


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports of loopback. Drawn, so that test runs side by side do not pick the same ones."""
    dice = random.SystemRandom()
    ports: list[int] = []
    while len(ports) < count:
        port = dice.choice(PORTS)
        if port not in ports and _is_free(port):
            ports.append(port)
    return ports


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
