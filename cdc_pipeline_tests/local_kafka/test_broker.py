"""Start, stop and crash of the broker: kept records, error messages, and no orphaned process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition

from cdc_pipeline.errors import TransientError
from cdc_pipeline_tests.local_kafka.broker import LocalBroker
from cdc_pipeline_tests.local_kafka.clients import quiet_admin
from cdc_pipeline_tests.local_kafka.conftest import Kafka
from cdc_pipeline_tests.local_kafka.feed import Record, create_topics, produce
from cdc_pipeline_tests.local_kafka.listeners import Listener
from cdc_pipeline_tests.support.servers.kafka_clients import SECONDS, consumed, filled, topic_names, values


@pytest.mark.jvm
def test_records_survive_a_kill_a_restart_and_another_broker_of_the_folder(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        topic, bootstrap, first = filled(broker.bootstrap, "kept", ["a", "b"]), broker.bootstrap, broker.pid
        broker.start()
        assert broker.pid == first
        broker.kill()
        assert broker.pid is None
        broker.start()
        assert broker.bootstrap == bootstrap
        assert broker.pid not in {first, None}
        assert values(consumed(bootstrap, topic, 2)) == ["a", "b"]
        more = [Record(topic, 0, 2, None, None, b"c")]
        assert [found.offset for part in produce(bootstrap, more) for found in part] == [2]
        broker.restart()
        assert values(consumed(bootstrap, topic, 3)) == ["a", "b", "c"]
    assert broker.pid is None
    broker.stop()
    with LocalBroker(tmp_path) as later:
        assert later.bootstrap != bootstrap
        assert values(consumed(later.bootstrap, topic, 3)) == ["a", "b", "c"]


@pytest.mark.jvm
def test_a_broker_that_ends_by_itself_is_reported_with_the_line_that_says_why(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path)
    host, port = broker.bootstrap.split(":")
    with socket.create_server((host, int(port))), pytest.raises(TransientError, match=r"BindException|already in use"):
        broker.start()
    assert broker.pid is None


@pytest.mark.jvm
def test_an_unsupported_setting_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=r"num\.partitions"):
        LocalBroker(tmp_path, settings={"num.partitions": "many"}).start()


def test_two_listeners_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the same name"):
        LocalBroker(tmp_path, [Listener("plaintext", "PLAINTEXT")])


@pytest.mark.jvm
def test_the_broker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys, threading, time, pathlib\n"
        "from cdc_pipeline_tests.local_kafka.broker import LocalBroker\n"
        "broker = LocalBroker(pathlib.Path(sys.argv[1]))\n"
        # from a thread that ends: the broker must not end with it
        "starter = threading.Thread(target=broker.start)\n"
        "starter.start()\n"
        "starter.join()\n"
        "time.sleep(0.5)\n"
        "print(broker.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        broker = int(parent.stdout.readline())
        os.kill(broker, 0)
        parent.send_signal(signal.SIGKILL)
    until = time.monotonic() + SECONDS
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.kill(broker, 0)
            time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(broker, 0)


def test_a_topic_is_not_made_by_being_written_to(kafka: Kafka) -> None:
    bootstrap = kafka.broker.bootstrap
    with pytest.raises(TransientError, match=r"UNKNOWN_TOPIC.*\[topic unmade, partition 0\]"):
        list(produce(bootstrap, [Record("unmade", 0, 0, None, None, b"a")], timeout_seconds=10))
    assert "unmade" not in topic_names(bootstrap)


def test_deleted_records_are_expired_offsets(kafka: Kafka) -> None:
    bootstrap = kafka.broker.bootstrap
    topic = filled(bootstrap, "expiring", ["a", "b", "c", "d"])
    admin = quiet_admin(bootstrap)
    deleted = admin.delete_records([TopicPartition(topic, 0, 3)])
    assert [answer.result(SECONDS).low_watermark for answer in deleted.values()] == [3]
    assert values(consumed(bootstrap, topic, 1)) == ["d"]
    with pytest.raises(KafkaException) as caught:
        consumed(bootstrap, topic, 1, {"auto.offset.reset": "error"})
    assert caught.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


def test_a_topic_made_again_has_another_id(kafka: Kafka) -> None:
    admin = quiet_admin(kafka.broker.bootstrap)

    def topic_id() -> str:
        answer = admin.describe_topics(TopicCollection(["again"]))["again"]
        return str(answer.result(SECONDS).topic_id)

    filled(kafka.broker.bootstrap, "again", ["a", "b"])
    first = topic_id()
    admin.delete_topics(["again"], operation_timeout=SECONDS)["again"].result(SECONDS)
    filled(kafka.broker.bootstrap, "again", ["c"])
    assert topic_id() != first
    assert values(consumed(kafka.broker.bootstrap, "again", 1)) == ["c"]


def test_a_topic_that_is_there_is_not_made_again(kafka: Kafka) -> None:
    create_topics(kafka.broker.bootstrap, {"once": 1})
    with pytest.raises(TransientError, match=r"TOPIC_ALREADY_EXISTS.*\[topic once\]"):
        create_topics(kafka.broker.bootstrap, {"once": 1})
