"""`make kafka-demo`: a real Kafka broker, a producer of shop records, and Dagster with the sensor that ingests them.

The records are those of a real TiCDC capture. The broker runs from the released jars. Ctrl-C removes everything except
the lake `data/lake/live`, which the next demo replaces.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import ui

from cdc_pipeline.errors import CdcError
from cdc_pipeline.spark.java import JavaError
from cdc_pipeline_tests.local_kafka.broker import LocalBroker
from cdc_pipeline_tests.local_kafka.definitions import BOOTSTRAP, LAKE, TOPIC
from cdc_pipeline_tests.local_kafka.feed import Record, capture_records, create_topics, partition_counts, produce

_CAPTURE = Path("data/captures/shop")
_MODULE = ["-m", "cdc_pipeline_tests.local_kafka.definitions"]
_SLICE = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=3000)
    parser.add_argument("--speed", type=float, default=20.0, help="records a second")
    options = parser.parse_args()
    if ui.is_port_in_use(options.port):
        print(f"[kafka-demo] port {options.port} is in use: make kafka-demo PORT=3001", file=sys.stderr)
        return 1
    lake = Path(os.environ.setdefault(LAKE, "data/lake"))
    # each demo has a new broker, whose offsets do not fit the lake of the last demo
    shutil.rmtree(lake / "live", ignore_errors=True)
    records = [replace(record, topic=TOPIC) for record in capture_records(_CAPTURE)]
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-kafka-") as folder:
        print("[kafka-demo] starting the broker (downloads its jars the first time) ...", flush=True)
        try:
            with LocalBroker(Path(folder)) as broker:
                os.environ[BOOTSTRAP] = broker.bootstrap
                create_topics(broker.bootstrap, partition_counts(records))
                print(
                    f"[kafka-demo] broker {broker.bootstrap}; producing {len(records)} records, {options.speed:g} a second"
                )
                feeder = threading.Thread(target=_feed, args=(broker.bootstrap, records, options.speed), daemon=True)
                feeder.start()
                print("[kafka-demo] watch Jobs > live_follow and the assets below live/mirror appear", flush=True)
                return ui.serve(options.port, _MODULE)
        except (CdcError, JavaError) as error:
            print(f"[kafka-demo] {error}", file=sys.stderr)
            return 1


def _feed(bootstrap: str, records: list[Record], speed: float) -> None:
    sent = 0
    try:
        for part in produce(bootstrap, records, slice_size=_SLICE, records_per_second=speed):
            sent += len(part)
            if sent % 500 < _SLICE:
                print(f"[kafka-demo] {sent} of {len(records)} records produced", flush=True)
    except CdcError as error:
        print(f"[kafka-demo] the producer failed: {error}", file=sys.stderr, flush=True)
    else:
        print(f"[kafka-demo] all {sent} records produced; Ctrl-C ends the demo", flush=True)


if __name__ == "__main__":
    sys.exit(main())
