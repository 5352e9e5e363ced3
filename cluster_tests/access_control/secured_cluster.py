"""Groups with access control, and root, who may do everything there."""

from local_cluster import LocalCluster
from our_commands import try_mq

ROOT = ("root", "root-secret")
CONF = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
}


def at_leaders(cluster: LocalCluster, command: str, *arguments: str) -> bool:
    """Whether all groups that are known have made the change."""
    done = try_mq("admin", command, "-n", cluster.namesrv, "-c", "DefaultCluster", *arguments)
    return done.returncode == 0
