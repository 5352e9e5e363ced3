"""The rendered answer to a stored message is the frame that remoting would encode."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.processors.send.send_response import SendResponseEncoder
from remoting.frame.command import encode_response

COMMON = {"MSG_REGION": 'Default"Region%s', "TRACE_ON": "true"}
INT32 = st.integers(min_value=0, max_value=2**31 - 1)


@settings(max_examples=50)
@given(
    opaque=INT32,
    message_id_prefix=st.from_regex(r"[0-9A-F]{16}([0-9A-F]{24})?", fullmatch=True),
    phy_offset=st.integers(min_value=0, max_value=2**63 - 1),
    queue_id=INT32.map(str),
    queue_offset=st.integers(min_value=0, max_value=2**63 - 1),
    transaction_id=st.one_of(
        st.from_regex(r"[0-9A-F]{32}", fullmatch=True), st.text(min_size=1, max_size=20)
    ),
)
def test_it_is_the_frame_of_the_general_encoder(
    opaque: int,
    message_id_prefix: str,
    phy_offset: int,
    queue_id: str,
    queue_offset: int,
    transaction_id: str,
) -> None:
    encoder = SendResponseEncoder(COMMON, message_id_prefix)
    fields = {
        **COMMON,
        "msgId": f"{message_id_prefix}{phy_offset:016X}",
        "queueId": queue_id,
        "queueOffset": str(queue_offset),
        "transactionId": transaction_id,
    }
    values = (opaque, phy_offset, queue_id, queue_offset, transaction_id)
    assert encoder.json(*values) == encode_response(opaque, 0, 0, fields)
    assert encoder.binary(*values) == encode_response(opaque, 1, 0, fields)
