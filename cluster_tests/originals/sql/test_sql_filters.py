"""SQL92 filters beside RocketMQ's own: expressions at its parser and ours, its clients at our brokers."""

import os
import re
import subprocess
from urllib.parse import quote_plus

import pytest
from local_cluster import LocalCluster, wait_for
from originals.java_client import QUICK_START, JavaClient, class_path
from originals.java_mqadmin import VERSION
from originals.sql.sql_expressions import ExpressionSource
from originals.test_java_clients import keys_of, sent

from message.errors import SubscriptionParseError
from message.sql.errors import EvaluationError
from message.sql.parser import parse

pytestmark = [pytest.mark.java, pytest.mark.slow]

CONF = {"enablePropertyFilter": "true"}  # which it is at ours anyway
EXPRESSION_COUNT = 10_000
MESSAGE_COUNT = 8
SHOWN = {True: "true", False: "false", None: "null"}


def java_answers(messages: list[dict[str, str]], expressions: list[str]) -> list[str]:
    """REFUSED, or what each message is to the expression."""
    pairs = [[f"{quote_plus(name)}={quote_plus(value)}" for name, value in each.items()] for each in messages]
    lines = [f"P {'&'.join(each)}" for each in pairs] + [f"E {quote_plus(each)}" for each in expressions]
    command = ["java", *QUICK_START, "-cp", class_path(VERSION, server=True), "SqlFilters"]
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout.splitlines()


def our_answer(messages: list[dict[str, str]], expression: str) -> str:
    try:
        parsed = parse(expression)
    except SubscriptionParseError:
        return "REFUSED"
    answers = []
    for message in messages:
        properties = {name.encode(): value for name, value in message.items()}
        try:
            answers.append(SHOWN[parsed.truth(properties.get)])
        except EvaluationError:
            answers.append("error")
    return " ".join(answers)


def test_drawn_expressions_are_to_us_what_they_are_to_rocketmq() -> None:
    """SQL_SEED=N draws others."""
    seed = int(os.environ.get("SQL_SEED", "1"))
    source = ExpressionSource(seed)
    messages = [source.message() for _ in range(MESSAGE_COUNT)]
    expressions = [source.expression() for _ in range(EXPRESSION_COUNT)]
    theirs = java_answers(messages, expressions)
    differing = [
        f"{expression!r}: RocketMQ {answer}, ours {ours}"
        for expression, answer in zip(expressions, theirs, strict=True)
        if (ours := our_answer(messages, expression)) != answer
    ]
    assert not differing, f"SQL_SEED={seed}: {len(differing)} differ, such as\n" + "\n".join(differing[:20])
    assert theirs.count("REFUSED") < EXPRESSION_COUNT * 0.6, "too few can be read to say anything"
    assert all(any(word in answer for answer in theirs) for word in ("true", "false", "null", "error"))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return re.sub(r"\W+", "_", request.node.name)


def test_an_sql_subscription_that_cannot_be_read_fails_at_the_java_client(
    java: JavaClient, shared_namesrv: str, topic: str
) -> None:
    sent(java, shared_namesrv, topic, 1, "t")
    with (
        pytest.raises(AssertionError, match="CODE: 23 "),
        java.consume(shared_namesrv, topic, f"{topic}_group", "one", "sql:TAGS == 'TagA'") as consumer,
    ):
        consumer.wait_for("started")


def test_sql_subscriptions_outlive_a_restart_of_all_brokers(
    cluster: LocalCluster, newest_java: JavaClient
) -> None:
    cluster.up()
    topic = "SqlRestart"
    sent(newest_java, cluster.namesrv, topic, 30, "a", "TagA", "TagB")
    with newest_java.consume(cluster.namesrv, topic, "sql_group", "one", "sql:TAGS = 'TagA'") as consumer:
        wait_for(lambda: len(keys_of(consumer, "received")) >= 10, 60, "some messages")
        cluster.kill_all()
        cluster.start_missing()
        cluster.leader()
        acknowledged, _ = sent(newest_java, cluster.namesrv, topic, 30, "b", "TagA", "TagB")
        wanted = {key for key in acknowledged if int(key.rpartition("-")[2]) % 2 == 0}
        wait_for(lambda: wanted <= set(keys_of(consumer, "received")), 90, "what came after the restart")
        assert {e["tag"] for e in consumer.events if e["event"] == "received"} == {"TagA"}
