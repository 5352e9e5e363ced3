"""The commands of `mq admin`, and how one of them is run.

A command is a function of the module that COMMANDS names, loaded when it is wanted. Operators run these in loops: typer
alone takes longer to load than a command takes to work, so options are read by argparse here.
"""

from __future__ import annotations

import argparse
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
        " getConsumerConfig updateSubGroup updateSubGroupList deleteSubGroup",
        "offsets": "resetOffsetByTime skipAccumulatedMessage cloneGroupOffset",
        "brokers": "clusterList brokerStatus brokerConsumeStats haStatus getBrokerConfig updateBrokerConfig"
        " deleteExpiredCommitLog cleanExpiredCQ cleanUnusedTopic exportMetadata",
        "messages": "queryMsgById queryMsgByKey queryMsgByUniqueKey queryMsgTraceById"
        " queryMsgByOffset queryCq printMsg printMsgByQueue consumeMessage",
        "sending": "sendMessage sendMsgStatus checkMsgSendRT clusterRT",
        "namesrvs": "getNamesrvConfig updateNamesrvConfig updateKvConfig deleteKvConfig"
        " wipeWritePerm addWritePerm",
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
    options = parser.parse_args(given or ["--help"])
    try:
        options.command.run(options)
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as a shell tells of it


if __name__ == "__main__":
    main()
