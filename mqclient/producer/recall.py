"""Recalls a timer message that is not due yet."""

from __future__ import annotations

import asyncio

from message.recall_handle import RecallHandle
from mqclient.client_instance import ClientInstance
from mqclient.errors import BrokerResponseError, MQClientError, NoMasterError
from mqclient.producer.producer_config import ProducerConfig
from remoting.codes import RequestCode, ResponseCode


async def recall(
    instance: ClientInstance,
    group: str,
    topic: str,
    recall_handle: str,
    timeout_s: float | None,
    config: ProducerConfig,
) -> None:
    """Asks until one answers that leads: a second recall changes nothing. Raises ValueError for what is no handle, and
    MQClientError, which is `definite` only if no attempt may have been stored.
    """
    try:
        broker_name = RecallHandle.decode(recall_handle).broker_name
    except ValueError:
        raise ValueError(f"{recall_handle!r} is no recall handle of a timer message") from None
    fields = {"producerGroup": group, "topic": topic, "recallHandle": recall_handle, "bname": broker_name}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (timeout_s or config.send_timeout_s)
    pause_s = config.retry_pause_s
    refresh = False
    definite = True
    while True:
        try:
            route = await (instance.routes.refresh(topic) if refresh else instance.routes.route(topic))
            address = route.master_address(broker_name)
            if address is None:
                raise NoMasterError(f"broker {broker_name} has no leader now")
            await instance.api.call(
                address, RequestCode.RECALL_MESSAGE, fields, timeout_s=max(deadline - loop.time(), 0.001)
            )
            return
        except MQClientError as error:
            definite = error.definite = definite and error.definite
            is_slave = (
                isinstance(error, BrokerResponseError) and error.code == ResponseCode.SLAVE_NOT_AVAILABLE
            )
            if not (error.retriable or is_slave) or loop.time() + pause_s >= deadline:
                raise
        refresh = True
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, config.retry_pause_max_s)
