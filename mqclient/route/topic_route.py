"""The route of one topic, as a NameServer answers it (TopicRouteData), turned into queues and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mqclient.message_queue import MessageQueue
from remoting.bodies.bodies import MASTER_ID, TopicRouteData

PERM_WRITE = 2
PERM_READ = 4


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """`brokers`: broker name to addresses by broker id, of which 0 is the master (the leader of the group).

    Publish queues belong to brokers that have a master now; write and subscribe queues do not ask for one, because a
    group keeps its queues while it elects.
    """

    topic: str
    brokers: Mapping[str, Mapping[int, str]]
    publish_queues: tuple[MessageQueue, ...]
    subscribe_queues: tuple[MessageQueue, ...]
    write_queues: tuple[MessageQueue, ...] = ()

    def master_address(self, broker_name: str) -> str | None:
        return self.brokers.get(broker_name, {}).get(MASTER_ID)


def topic_route_of(topic: str, data: TopicRouteData) -> TopicRoute:
    brokers = {broker.broker_name: broker.broker_addrs for broker in data.broker_datas}
    write: list[MessageQueue] = []
    subscribe: list[MessageQueue] = []
    for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name):
        name = queues.broker_name
        if queues.perm & PERM_READ:
            subscribe += [MessageQueue(topic, name, queue_id) for queue_id in range(queues.read_queue_nums)]
        if queues.perm & PERM_WRITE:
            write += [MessageQueue(topic, name, queue_id) for queue_id in range(queues.write_queue_nums)]
    publish = [queue for queue in write if MASTER_ID in brokers.get(queue.broker_name, {})]
    return TopicRoute(topic, brokers, tuple(publish), tuple(subscribe), tuple(write))
