"""Headers of pop consumption; what they have in common with others is in headers.py."""

from __future__ import annotations

from remoting.headers.headers import CommandHeader, Int32, Int64, TopicRequestHeader


class PopMessageRequestHeader(TopicRequestHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32  # -1: all
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64 = 0  # 0: now
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class PopMessageResponseHeader(CommandHeader, kw_only=True):
    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0
    rest_num: Int64 = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(TopicRequestHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


class ChangeInvisibleTimeRequestHeader(TopicRequestHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    lite_topic: str | None = None
    suspend: bool = False


class ChangeInvisibleTimeResponseHeader(CommandHeader, kw_only=True):
    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


class PeekMessageRequestHeader(TopicRequestHeader, kw_only=True):
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


class NotificationRequestHeader(TopicRequestHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponseHeader(CommandHeader, kw_only=True):
    has_msg: bool = False
    polling_full: bool = False


class PollingInfoRequestHeader(TopicRequestHeader, kw_only=True):
    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponseHeader(CommandHeader, kw_only=True):
    polling_num: Int32
