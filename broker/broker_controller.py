"""A broker without its sockets: all processors over one store, wired together.

The shell (broker/server.py) gives it reads, ticks and events; tests and the simulator may do the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.access.access_check import AccessCheck
from broker.access.audit_notes import AuditNotes
from broker.access.conf_users import ConfUsers
from broker.access.passed_on import PassedOn
from broker.broker_stats import BrokerStats
from broker.clients.client_channel import ClientChannel
from broker.clients.client_requests import ClientRequests
from broker.clients.consumer_manager import ConsumerManager
from broker.clients.producer_manager import ProducerManager
from broker.clients.rebalance_lock_manager import RebalanceLockManager
from broker.config.broker_config import BrokerConfig
from broker.config.broker_settings import parse_hours
from broker.config.component_configs import cluster_secrets
from broker.http.member_figures import MemberStatus
from broker.leadership.backlog_hand_over import BacklogHandOver
from broker.leadership.follower_changes import AskLeader, FollowerChanges
from broker.pipeline import RequestPipeline
from broker.processors.admin.access_admin_processor import AccessAdminProcessor
from broker.processors.admin.admin_broker_processor import AdminBrokerProcessor
from broker.processors.admin.broker_info_processor import BrokerInfoProcessor, DiskUsage
from broker.processors.admin.client_admin_processor import ClientAdminProcessor
from broker.processors.admin.consume_stats_processor import ConsumeStatsProcessor
from broker.processors.admin.entries_processor import EntriesProcessor
from broker.processors.admin.leadership_processor import LeadershipProcessor
from broker.processors.admin.membership_processor import MembershipProcessor
from broker.processors.admin.offset_admin_processor import OffsetAdminProcessor
from broker.processors.admin.pop_admin_processor import PopAdminProcessor
from broker.processors.admin.repair_processor import RepairProcessor
from broker.processors.admin.scrub_processor import ScrubProcessor
from broker.processors.admin.timer_admin_processor import TimerAdminProcessor
from broker.processors.admin.transaction_admin_processor import TransactionAdminProcessor
from broker.processors.clients.client_manage_processor import ClientManageProcessor, ConsumerIdsNotifier
from broker.processors.clients.consumer_manage_processor import ConsumerManageProcessor
from broker.processors.clients.query_assignment_processor import QueryAssignmentProcessor
from broker.processors.pop.ack_message_processor import AckMessageProcessor
from broker.processors.pop.pop_look_processor import PopLookProcessor
from broker.processors.pop.pop_message_processor import PopMessageProcessor
from broker.processors.pop.pop_queues import PopQueues
from broker.processors.pull.pull_message_processor import PullMessageProcessor
from broker.processors.pull.query_message_processor import QueryMessageProcessor
from broker.processors.send.recall_message_processor import RecallMessageProcessor
from broker.processors.send.reply_message_processor import ReplyMessageProcessor
from broker.processors.send.send_message_back_processor import SendMessageBackProcessor
from broker.processors.send.send_message_processor import SendMessageProcessor
from broker.processors.transactions.check_requests import CheckRequests
from broker.processors.transactions.transaction_processor import TransactionProcessor
from broker.registration.registration import Registration
from broker.registration.route_requests import AskRoute
from broker.registration.told_name_servers import ToldNameServers
from broker.registry import Lane, Processors, batch_request_types, request_types
from broker.request_turns import CallSoon
from broker.topics.subscription_group_manager import SubscriptionGroupManager
from broker.topics.topic_config_manager import TopicConfigManager
from broker.waiting.read_index_look_ups import ReadIndexLookUps
from broker.waiting.waiting_pops import WaitingPops
from broker.waiting.waiting_replies import WaitingReplies
from broker.waiting.waiting_room import WaitingRoom
from dledger.core.output import RoleChange
from store.dispatch_request import DispatchRequest

if TYPE_CHECKING:
    from store.message_store import MessageStore

EXPIRY_SCAN_INTERVAL_MS = 10_000


class BrokerController:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        clock: Callable[[], int],
        rng: random.Random,
        call_soon: CallSoon,
        disk_usage: DiskUsage | None = None,
        member_status: MemberStatus = dict,
        ask_leader: AskLeader | None = None,
        wake: Callable[[], None] = lambda: None,
        ask_route: AskRoute | None = None,
    ) -> None:
        """`store` must be started: its tables are read from here on. `clock` is in ms since the epoch. Without
        `ask_leader` a follower refuses what only its leader can do. `wake`: lets the next tick come soon.
        """
        self._store = store
        self._clock = clock
        self._next_scan_ms = 0
        self.name_servers = ToldNameServers(config.namesrv_addr, clock)
        self.topics = TopicConfigManager(config, store, self.name_servers.changed)
        self.groups = SubscriptionGroupManager(config, store)
        self.client_requests = ClientRequests()
        self._notifier = ConsumerIdsNotifier(
            self.client_requests, is_enabled=config.notify_consumer_ids_changed_enable
        )
        self.consumers = ConsumerManager(self._notifier, config.channel_expired_timeout_ms)
        self.waiting_replies = WaitingReplies(config.max_waiting_reply_bytes)
        self.producers = ProducerManager(
            config.channel_expired_timeout_ms, self.waiting_replies.requester_came
        )
        store.services.transaction_service.checks.producers = CheckRequests(
            config.broker_name, self.producers, self.client_requests
        )
        self.registration = Registration(config, store, self.topics, self.name_servers)
        self.locks = RebalanceLockManager()
        self.sends = SendMessageProcessor(config, store, self.topics, self.groups, self.locks, clock, rng)
        self._send_backs = SendMessageBackProcessor(config, store, self.topics, self.groups, clock, rng)
        self._replies = ReplyMessageProcessor(
            config,
            store,
            self.topics,
            self.producers,
            self.client_requests,
            self.waiting_replies,
            clock,
            rng,
        )
        self._recalls = RecallMessageProcessor(config, store, self.topics, rng)
        self.stats = BrokerStats(lambda: store.queues)
        self.waiting_room = WaitingRoom(store.reads.max_offset, store.reads.look_message_by_offset)
        self.pulls = PullMessageProcessor(
            config,
            store,
            self.topics,
            self.groups,
            self.consumers,
            self.stats,
            self.waiting_room,
            clock,
            call_soon,
        )
        self.waiting_pops = WaitingPops(store.reads.look_message_by_offset)
        self._pop_queues = PopQueues(config, store, self.topics, self.groups, rng)
        self.pops = PopMessageProcessor(config, store, self._pop_queues, self.stats, self.waiting_pops, clock)
        pop_looks = PopLookProcessor(config, store, self._pop_queues, self.waiting_pops)
        acks = AckMessageProcessor(store, self.topics, self.waiting_pops, clock, call_soon)
        self._assignments = QueryAssignmentProcessor(
            config, store, self.topics, self.groups, self.consumers, ask_route
        )
        self._clients = clients = ClientManageProcessor(
            config, self.consumers, self.producers, self.groups, self.topics, lambda: store.serving
        )
        consumer_manage = ConsumerManageProcessor(store, self.topics, self.groups, self.consumers, self.locks)
        admin = AdminBrokerProcessor(
            config, store, self.topics, self.groups, self.consumers, self.stats, self.name_servers
        )
        client_admin = ClientAdminProcessor(
            config, store, self.consumers, self.producers, self.client_requests
        )
        self._consume_stats = ConsumeStatsProcessor(config, store, self.topics, self.consumers, self.stats)
        self._queries = QueryMessageProcessor(store)
        self._offset_admin = OffsetAdminProcessor(
            config,
            store,
            self.topics,
            self.groups,
            self.consumers,
            self.client_requests,
            self._offset_reset,
        )
        self._leadership = LeadershipProcessor(store, is_group=config.dledger is not None)
        self._backlog_hand_over = (
            BacklogHandOver(store, config.dledger.self_id) if config.dledger is not None else None
        )
        membership = MembershipProcessor(
            store,
            is_group=config.dledger is not None,
            has_secret=config.dledger is not None and bool(config.dledger.cluster_secret),
        )
        self._info = BrokerInfoProcessor(
            config,
            store,
            self.stats,
            self.waiting_room,
            self.configure,
            self.name_servers,
            disk_usage,
            member_status,
            clock(),
        )
        passed_on = PassedOn(cluster_secrets(config.dledger))
        self._access = AccessCheck(
            config.access,
            config.broker_cluster_name,
            config.msg_trace_topic_name,
            store.tables.access_table,
            passed_on,
        )
        access = config.access
        self._conf_users = ConfUsers(access.conf_users if access.authentication_enabled else (), store)
        self._access_version = store.tables.access_table.data_version
        self._access_admin = AccessAdminProcessor(
            store, self._access, lambda code: self.pipeline.needs_of(code)
        )
        processors = Processors(
            sends=self.sends,
            pulls=self.pulls,
            pops=self.pops,
            pop_looks=pop_looks,
            acks=acks,
            assignments=self._assignments,
            clients=clients,
            consumers=consumer_manage,
            send_backs=self._send_backs,
            replies=self._replies,
            recalls=self._recalls,
            transactions=TransactionProcessor(store),
            queries=self._queries,
            admin=admin,
            client_admin=client_admin,
            consume_stats=self._consume_stats,
            offset_admin=self._offset_admin,
            info=self._info,
            timers=TimerAdminProcessor(store),
            transaction_admin=TransactionAdminProcessor(store),
            pop_admin=PopAdminProcessor(store),
            leadership=self._leadership,
            membership=membership,
            scrub=ScrubProcessor(store),
            repair=RepairProcessor(store),
            entries=EntriesProcessor(store),
            access=self._access_admin,
        )
        self._read_index_look_ups = ReadIndexLookUps(store, clock, is_enabled=config.read_index_enable)
        self.pipeline = RequestPipeline(
            batch_request_types(processors),
            request_types(processors),
            self._access,
            {
                Lane.READ_INDEX: self._read_index_look_ups.handle,
                Lane.LEADER: FollowerChanges(store, clock, passed_on, ask_leader).handle,
            },
            AuditNotes(store, clock).note,
            wake,
            self.client_requests.answered,
            self.pulls.resumed,
            self._channel_closed,
            clock,
            call_soon,
        )
        store.add_arrival_listener(self._arrived)
        store.add_role_listener(self._role_changed)
        store.add_serving_listener(self._serving_changed)

    def tick(self, now_ms: int) -> list[ClientChannel]:
        """Every 50 ms or so. Channels of clients that have been silent too long: to be closed."""
        self.name_servers.tick()
        self._conf_users.tick(now_ms)
        self._access_admin.tick(now_ms)
        self._end_waits_after_a_change_of_access(now_ms)
        self.waiting_room.tick(now_ms)
        self.waiting_pops.tick(now_ms)
        self.waiting_replies.tick(now_ms)
        self._replies.tick(now_ms)
        self.client_requests.tick(now_ms)
        self._consume_stats.tick()
        self._queries.tick(now_ms)
        self._leadership.tick(now_ms)
        if self._backlog_hand_over is not None:
            self._backlog_hand_over.tick(now_ms)
        if self._store.serving:
            delivered = self._store.services.timer_message_service.delivered
            self.stats.timers_delivered.value = delivered.total()
            self.stats.tick(now_ms)
        if now_ms < self._next_scan_ms:
            return []
        self._next_scan_ms = now_ms + EXPIRY_SCAN_INTERVAL_MS
        self.locks.expire(now_ms)
        expired = self.consumers.expire(now_ms) + self.producers.expire(now_ms)
        return [info.channel for info in expired]

    def due_ms(self, now_ms: int) -> int | None:
        """When the next tick is to come, at the latest; None: nothing waits for one."""
        if self._consume_stats.has_work or self._queries.has_work or self._leadership.has_work:
            return now_ms
        if self._replies.has_work:
            return now_ms
        times = (self.waiting_room.due_ms, self.waiting_pops.due_ms, self.waiting_replies.due_ms)
        return min((time for time in times if time is not None), default=None)

    def _end_waits_after_a_change_of_access(self, now_ms: int) -> None:
        """Who was allowed to wait for messages may not be any more: all ask again."""
        version = self._store.tables.access_table.data_version
        if version is not self._access_version and not self._access.is_open:
            self._access_version = version
            self.waiting_room.wake_all(now_ms)
            self.waiting_pops.wake_all(now_ms)

    def stop(self) -> None:
        """Answers all requests that wait, so that clients look elsewhere."""
        self.waiting_room.wake_all(self._clock())
        self.waiting_pops.wake_all(self._clock())
        self.waiting_replies.end_all(self._clock())

    def _arrived(self, requests: Sequence[DispatchRequest]) -> None:
        if not self.waiting_room.is_empty:
            self.waiting_room.on_arriving(requests, self._clock())
        if self.waiting_pops:
            self.waiting_pops.on_arriving(requests, self._clock())

    def _offset_reset(self, topic: str, queue_id: int) -> None:
        self.waiting_room.wake_queue(topic, queue_id, self._clock())
        self.waiting_pops.wake_topic(topic, self._clock())

    def _role_changed(self, change: RoleChange) -> None:
        self.waiting_room.wake_all(self._clock())
        self.waiting_pops.wake_all(self._clock())
        self.waiting_replies.end_all(self._clock())

    def _serving_changed(self, is_serving: bool) -> None:
        if is_serving:
            self.stats.start_serving()
        self._replies.serving_changed(is_serving, self._clock())

    def _channel_closed(self, channel: ClientChannel) -> None:
        self.pulls.closed(channel)
        self.waiting_room.channel_closed(channel.id)
        self.waiting_pops.channel_closed(channel.id)
        self.consumers.channel_closed(channel.id)
        self.producers.channel_closed(channel.id)
        # Last: what it was asked may be asked of another channel of that client.
        self.client_requests.channel_closed(channel.id)

    def configure(self, config: BrokerConfig) -> None:
        """Settings that were changed while the broker runs; see broker/config/runtime_config.py."""
        self.topics.configure(config)
        self.groups.configure(config)
        self.registration.configure(config)
        self.sends.prepared_sends.config = config
        self.pulls.config = config
        self.pops.config = config
        self._pop_queues.config = config
        self._assignments.config = config
        self._clients.config = config
        self._send_backs.config = config
        self._replies.config = config
        self._recalls.config = config
        self._offset_admin.config = config
        self._info.config = config
        self._read_index_look_ups.is_enabled = config.read_index_enable
        self._notifier.is_enabled = config.notify_consumer_ids_changed_enable
        store = config.store
        self._store.services.timer_message_service.stops_dequeue = store.timer_stop_dequeue
        self._store.retention.log.configure(
            store.file_reserved_time_hours * 3_600_000,
            parse_hours(store.delete_when),
            store.disk_max_used_space_ratio,
        )
