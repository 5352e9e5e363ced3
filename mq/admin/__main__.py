"""The commands of `mq admin`, and how one of them is run.

A command is a function of the module that COMMANDS names, loaded when it is wanted. Operators run these in loops: typer
alone takes longer to load than a command takes to work, so options are read by argparse here.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from importlib import import_module

from mq.admin.command import Command

COMMANDS = {
    name: f"mq.admin.{module}"
    for module, names in {
        "topics": "topicList topicRoute topicStatus topicClusterList allocateMQ statsAll"
        " updateTopic updateTopicList updateTopicPerm updateOrderConf deleteTopic",
        "groups": "consumerProgress consumerConnection consumerStatus producerConnection producer"
        " getConsumerConfig updateSubGroup updateSubGroupList deleteSubGroup"
        " setConsumeMode",
        "offsets": "resetOffsetByTime skipAccumulatedMessage cloneGroupOffset",
        "brokers": "clusterList brokerStatus brokerConsumeStats haStatus getBrokerConfig updateBrokerConfig"
        " deleteExpiredCommitLog cleanExpiredCQ cleanUnusedTopic exportMetadata transferLeader scrub scrubStatus"
        " repairStatus memberList addMember removeMember",
        "messages": "timerStatus popStatus transactionStatus resumeCheckHalfMessage"
        " queryMsgById queryMsgByKey queryMsgByUniqueKey queryMsgTraceById"
        " queryMsgByOffset queryCq printMsg printMsgByQueue consumeMessage",
        "sending": "sendMessage sendMsgStatus checkMsgSendRT clusterRT",
        "access": "createUser updateUser deleteUser getUser listUser createAcl updateAcl deleteAcl getAcl listAcl"
        " explainAccess importPlainAcl audit",
        "namesrvs": "getNamesrvConfig updateNamesrvConfig updateKvConfig deleteKvConfig"
        " wipeWritePerm addWritePerm",
    }.items()
    for name in names.split()
}

# Of RocketMQ's, with the reason; docs/mqadmin.md says it at length.
NOT_HERE = {
    name: reason
    for reason, names in {
        "it waits for static topics": "updateStaticTopic remappingStaticTopic",
        "no broker tells passwords; createUser and createAcl go to all groups of a cluster": "copyUser copyAcl",
        "it waits for cold data flow control": "getColdDataFlowCtrInfo updateColdDataFlowCtrGroupConfig"
        " removeColdDataFlowCtrGroupConfig",
        "it waits for lite topics": "getBrokerLiteInfo getParentTopicInfo getLiteTopicInfo getLiteClientInfo"
        " getLiteGroupInfo triggerLiteDispatch",
        "clusterList, getBrokerConfig and exportMetadata with --json say the same": "exportConfigs exportMetrics",
        "brokers' /metrics and consumerProgress --json are for monitoring": "startMonitoring",
        "a group elects its leader itself, there is no controller": "getSyncStateSet getBrokerEpoch"
        " getControllerMetaData getControllerConfig updateControllerConfig electMaster cleanBrokerMetadata",
        "there is no master-slave mode": "resetMasterFlushOffset",
        "there is no broker container": "addBroker removeBroker",
        "it is about ways of Java's memory-mapped files and timers": "setCommitLogReadAheadMode switchTimerEngine",
        "there are no RocksDB stores": "exportMetadataInRocksDB rocksDBConfigToJson checkRocksdbCqWriteProgress"
        " exportPopRecord",
        "there are no compaction topics": "dumpCompactionLog",
    }.items()
    for name in names.split()
}


def find_command(name: str) -> Command:
    """`cleanExpiredCQ` is the function clean_expired_cq."""
    function_name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    command: Command = getattr(import_module(COMMANDS[name]), function_name)
    return command


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit status 0: done; 1: failed; 2: wrong options; 130: interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    wanted = given[0] if given and given[0] in COMMANDS else None
    parser = argparse.ArgumentParser(
        prog="mq admin",
        description="RocketMQ's mqadmin without a JVM: its sub-commands, under its names and with its options.",
        epilog="The NameServer may also be given as NAMESRV_ADDR in the environment.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in (wanted,) if wanted is not None else COMMANDS:
        find_command(name).add_to(commands, name)
    if wanted is None and given and not given[0].startswith("-"):
        parser.error(_unknown(given[0]))
    options, unknown = parser.parse_known_args(given or ["--help"])
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")  # with the command's options
    try:
        options.command.run(options)
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as a shell tells of it


def _unknown(name: str) -> str:
    by_lower = {known.lower(): known for known in (*COMMANDS, *NOT_HERE)}
    known = by_lower.get(name.lower())
    if known in NOT_HERE:
        return f"{known} is not here: {NOT_HERE[known]}"
    nearest = (
        [known] if known else [by_lower[it] for it in difflib.get_close_matches(name.lower(), by_lower, 1)]
    )
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    return f"there is no command {name}: {hint}mq admin --help lists all"


if __name__ == "__main__":
    main()
