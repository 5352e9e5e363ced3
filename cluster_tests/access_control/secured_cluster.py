"""Brokers with access control, and root, who may do everything there."""

import json

from local_cluster import LocalCluster
from originals.serving import Serving
from our_commands import try_mq

ROOT = ("root", "root-secret")
INIT_USER = json.dumps(dict(zip(("username", "password"), ROOT, strict=True)))
CONF = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
}
_PROVIDERS = "org.apache.rocketmq.auth"
# RocketMQ's broker knows no users unless it is told where it has them.
CONF_OF_ROCKETMQ = {
    **CONF,
    "initAuthenticationUser": INIT_USER,
    "authenticationMetadataProvider": f"{_PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider",
}


def at_leaders(servers: LocalCluster | Serving, command: str, *arguments: str) -> bool:
    """Whether all groups that are known have made the change."""
    done = try_mq("admin", command, "-n", servers.namesrv, "-c", "DefaultCluster", *arguments)
    return done.returncode == 0
