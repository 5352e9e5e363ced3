"""What a worker is told of a read of messages, whichever of its ranges it reads."""

from __future__ import annotations

from dataclasses import dataclass

from message.names import TOOLS_CONSUMER_GROUP
from message.tags import EXPRESSION_TYPE_TAG, SUB_ALL
from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.common_options import POLL_TIMEOUT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions:
    """What a worker has to know to read a range of any queue."""

    cluster: ClusterAccess
    consumer_group: str = TOOLS_CONSUMER_GROUP  # for access control: nothing is committed
    expression: str = SUB_ALL
    expression_type: str = EXPRESSION_TYPE_TAG
    timeout_ms: int = POLL_TIMEOUT_MS  # without a message or an end
    fail_on_data_loss: bool = True

    @property
    def wants_all(self) -> bool:
        return self.expression == SUB_ALL
