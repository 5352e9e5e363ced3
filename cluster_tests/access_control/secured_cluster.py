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
INNER = json.dumps(dict(zip(("accessKey", "secretKey"), ROOT, strict=True)))
CONF_OF_PROXY = {"authenticationEnabled": True, "innerClientAuthenticationCredentials": INNER}
# RocketMQ's broker knows no users unless it is told where it has them, nor does its proxy.
_PROVIDERS = "org.apache.rocketmq.auth"
_PROXY_PROVIDERS = "org.apache.rocketmq.proxy.auth"
CONF_OF_ROCKETMQ = {
    **CONF,
    "initAuthenticationUser": INIT_USER,
    "authenticationMetadataProvider": f"{_PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider",
}
CONF_OF_ROCKETMQS_PROXY = {
    **CONF_OF_PROXY,
    "authorizationEnabled": True,
    "authenticationMetadataProvider": f"{_PROXY_PROVIDERS}.ProxyAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_PROXY_PROVIDERS}.ProxyAuthorizationMetadataProvider",
    "enableAclRpcHookForClusterMode": True,  # or its inner client's keys would not be used
    "userCacheExpiredSeconds": 1,  # after ten minutes it would be seen that a user is disabled
    "userCacheRefreshSeconds": 1,
}


def at_leaders(servers: LocalCluster | Serving, command: str, *arguments: str) -> bool:
    """Whether all groups that are known have made the change."""
    done = try_mq("admin", command, "-n", servers.namesrv, "-c", "DefaultCluster", *arguments)
    return done.returncode == 0
