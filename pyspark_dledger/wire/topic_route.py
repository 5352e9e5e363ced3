"""A topic's route, asked of NameServers by sockets that block."""

from collections.abc import Callable
from contextlib import closing
from typing import Final, TypeVar

from pyspark_dledger.wire.cluster_access import ClusterAccess, check_not_refused
from pyspark_dledger.wire.patience import NotNowError
from remoting.bodies.bodies import MASTER_ID, TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingBodyError, RemotingError

_ROUTE_TIMEOUT_S: Final = 3.0

_Found = TypeVar("_Found")


def find_in_route(cluster: ClusterAccess, topic: str, find: Callable[[TopicRouteData], _Found]) -> _Found:
    """What `find` makes of the route that the first NameServer knows. Where it raises NotNowError, the next NameServer
    is asked. Raises NotNowError, with the trouble of each, and AccessError.
    """
    troubles = []
    for address in cluster.namesrv:
        try:
            with closing(cluster.connection(address)) as connection:
                answer = connection.call(
                    RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, _ROUTE_TIMEOUT_S
                )
            check_not_refused(address, answer)
            if answer.code != ResponseCode.SUCCESS:
                raise NotNowError(f"answers {answer.code} {(answer.remark or '').partition(chr(10))[0]}")
            return find(TopicRouteData.decode(answer.body))
        except (RemotingError, RemotingBodyError) as error:
            troubles.append(str(error))
        except NotNowError as error:
            troubles.append(f"{address} {error}")
    raise NotNowError("; ".join(troubles))


def leaders_of(route: TopicRouteData) -> dict[str, str]:
    """By name of the broker, the addresses of those that have a leader."""
    return {
        broker.broker_name: broker.broker_addrs[MASTER_ID]
        for broker in route.broker_datas
        if MASTER_ID in broker.broker_addrs
    }
