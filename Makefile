# `make` alone lists the targets. `make V=1 ...` shows the commands.

PYTHON ?= python3
PORT ?= 3000
SPEED ?= 20
# `make lock LOCK_FLAGS=--upgrade` takes the newest versions that pyproject.toml allows; without it pins stay.
LOCK_FLAGS ?=
# `make bench BENCH_FLAGS='--records 300000 --repeat 2'` is a shorter one.
BENCH_FLAGS ?=
# Options of pytest: `make test TEST_FLAGS="-k sensor"`. `--record-durations=core` (of `make test`) or `=all` (of
# `make test-all`) writes the seconds of each file to cdc_pipeline_tests/durations.new.json. Files are shared out by durations.json.
TEST_FLAGS ?=
# `make test-all SHARD=2/8` runs one of eight shards, and any other number works too; `make test-all FROM=3` starts with the
# third.
SHARD ?=
SHARDS := 8
FROM ?= 1
# `make test-changed SINCE=main`: what changed since a commit; by default what is not committed.
SINCE ?= HEAD
# `make history HISTORY_FLAGS='--where id=7 --last 40'`: the changes of one row.
LAKE ?= data/lake/shop
TABLE ?=
HISTORY_FLAGS ?=

BIN := .venv/bin
# Always asked, and done in some milliseconds when there is nothing to do: it compares what requirements.lock and
# pyproject.toml hold with what .venv was made from, where make itself could only compare times, which git resets.
BOOTSTRAP = command -v $(PYTHON) >/dev/null || { echo "[setup] no $(PYTHON) here; name one with: make PYTHON=/path/to/python3" >&2; exit 1; }; \
	$(PYTHON) scripts/bootstrap.py

ifndef V
.SILENT:
endif
MAKEFLAGS += --no-print-directory
# Two targets share one .venv, and Spark takes every core anyway.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help wheel venv venv-and-java demo test test-fast test-core test-all test-changed bench bench-end-to-end \
	bench-tables bench-growth bench-memory bench-start bench-days bench-latency lint format lock history docs ui \
	kafka-demo clean

# dagster.yaml is read from DAGSTER_HOME, and what Dagster stores goes beside it.
demo ui kafka-demo: export DAGSTER_HOME := $(CURDIR)
# The broker is in cdc_pipeline_tests, which is not installed.
kafka-demo: export PYTHONPATH := $(CURDIR)

help: ## list the targets
	sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24

venv: ## make .venv from requirements.lock, if it is not up to date
	$(BOOTSTRAP)

# For what starts Spark: a missing Java is told before a minute of installing, not after it.
venv-and-java:
	$(BOOTSTRAP) --java

demo: venv-and-java ## ingest $CDC_CAPTURES into $CDC_LAKE and show the mirrors
	$(BIN)/python -m cdc_pipeline.demo

# Tiers: cdc_pipeline_tests/support/tiers.py.
test: test-fast test-core ## run the tests that CI runs: ten minutes

# $(call pytest,MARKERS,OPTIONS): two processes, each with a Spark session of its own where a test needs one. 5 is
# pytest's "no test selected", which is right where TEST_FLAGS select.
define pytest
	$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -m "$(1)" $(2) $(TEST_FLAGS) || \
		{ status=$$?; [ $$status -eq 5 ] && [ -n '$(subst ','\'',$(TEST_FLAGS))' ] || exit $$status; }
endef

test-fast: venv ## run the tests that need no Java: two minutes
	$(call pytest,not jvm and not long)

test-core: venv-and-java
	$(call pytest,core,--durations=10)

test-all: venv-and-java ## run every test: or one of so many parts: SHARD=2/8
ifneq ($(SHARD),)
	$(call pytest,,--durations=10 --shard=$(SHARD))
else
	for shard in $$(seq $(FROM) $(SHARDS)); do \
		$(MAKE) test-all SHARD=$$shard/$(SHARDS) || { echo "go on with: make test-all FROM=$$shard" >&2; exit 1; }; \
	done
endif

test-changed: venv-and-java ## run the tests that your changes can affect
	$(BIN)/python -m cdc_pipeline_tests.support.changed --since $(SINCE) -- $(TEST_FLAGS)

bench: venv-and-java ## time decoding over the floor job
	$(BIN)/python -m benchmarks.decode $(BENCH_FLAGS)

bench-end-to-end: venv-and-java ## events per CPU-second and per second, from a broker to the mirror
	$(BIN)/python -m benchmarks.end_to_end $(BENCH_FLAGS)

bench-tables: venv-and-java ## time a batch over 200 tables, and one of as many events of one table
	$(BIN)/python -m benchmarks.tables $(BENCH_FLAGS)

bench-growth: venv-and-java ## time a batch into a mirror of a million rows, and into one of ten million
	$(BIN)/python -m benchmarks.growth $(BENCH_FLAGS)

bench-memory: venv-and-java ## memory of a run for half a million events, and for five million
	$(BIN)/python -m benchmarks.memory $(BENCH_FLAGS)

bench-start: venv-and-java ## time from launch to the first record, and of a run without news
	$(BIN)/python -m benchmarks.start $(BENCH_FLAGS)

bench-days: venv-and-java ## time the thousandth small batch into a lake, and the tenth
	$(BIN)/python -m benchmarks.days $(BENCH_FLAGS)

bench-latency: venv-and-java ## time from produce to mirror at 1000 events a second, under Dagster's daemon
	$(BIN)/python -m benchmarks.latency $(BENCH_FLAGS)

wheel: venv ## build the wheel into dist/
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	ls dist/*.whl

lint: venv ## ruff check, ruff format --check, mypy, lint-imports
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	# apart from the package, which mypy takes from pyproject.toml when no file is named
	$(BIN)/mypy scripts/*.py
	# without a cache: it would be one more folder to ignore, and takes no longer
	$(BIN)/lint-imports --no-logo --no-cache

format: venv ## let ruff format and mend what it can
	# what it cannot mend is for `make lint` to judge
	$(BIN)/ruff check --quiet --fix --exit-zero .
	$(BIN)/ruff format .

# --universal: one lock for every Python and system, with markers. --python-version is the oldest Python supported.
# The --no-emit flags and --no-header keep this machine's package index and command line out of the file.
lock: ## write requirements.lock anew from pyproject.toml (needs the package index)
	set -e; uv=uv; \
	if ! command -v uv >/dev/null; then \
		echo "[lock] no uv on PATH; using one from a throw-away environment ..."; \
		throwaway=$$(mktemp -d); trap 'rm -rf "$$throwaway"' EXIT; \
		$(PYTHON) -m venv "$$throwaway"; \
		"$$throwaway/bin/pip" install --quiet --disable-pip-version-check uv; \
		uv="$$throwaway/bin/uv"; \
	fi; \
	"$$uv" pip compile pyproject.toml --quiet --extra dev --universal --python-version 3.10 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --no-header $(LOCK_FLAGS) -o requirements.lock; \
	echo "[lock] requirements.lock: $$(grep -c '==' requirements.lock) pins"

history: venv ## print what the lake holds of a table: make history LAKE=data/lake/shop TABLE=shop.orders
	$(BIN)/python scripts/table_history.py $(LAKE) $(TABLE) $(HISTORY_FLAGS)

docs: venv ## write docs/pipeline.md, and the rules of docs/dialects.md, anew from the models that they are in
	$(BIN)/python scripts/pipeline_fields.py
	$(BIN)/python scripts/field_rules.py

ui: venv-and-java ## run Dagster's webserver and daemon on PORT (3000) until Ctrl-C
	exec $(BIN)/python scripts/ui.py --port $(PORT)

# SPEED: records a second.
kafka-demo: venv-and-java ## run a Kafka broker, a shop that writes to it, and Dagster's UI and daemon until Ctrl-C
	exec $(BIN)/python scripts/kafka_demo.py --port $(PORT) --speed $(SPEED)

# Only what can be made again. Not data/lake, and not Dagster's own history (storage/, history/, schedules/, logs/):
# those are results, delete them by hand.
clean: ## delete .venv and what the tools left behind
	rm -rf .venv dist build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -path ./data -prune -o -path ./.git -prune -o -type d -name __pycache__ -exec rm -rf {} +
