# `make` alone lists the targets. `make V=1 ...` shows the commands.

PYTHON ?= python3
PORT ?= 3000
SPEED ?= 20
# `make lock LOCK_FLAGS=--upgrade` upgrades to the newest versions that pyproject.toml allows; without it pins stay.
LOCK_FLAGS ?=
# A shorter benchmark: make bench BENCH_FLAGS='--records 300000 --repeat 2'. Its figures as JSON: BENCH_FLAGS='--json FILE'
BENCH_FLAGS ?=
JAR_FLAGS ?=
# Options of pytest: make test TEST_FLAGS="-k sensor". `--record-durations=core` (in `make test`) or `=all` (in
# `make test-all`) writes the seconds of each file to cdc_pipeline_tests/durations.new.json. durations.json balances the shards.
TEST_FLAGS ?=
# `make test-all SHARD=2/10` runs one of ten shards (of any number); `make test-all FROM=3` starts with the third.
SHARD ?=
SHARDS := 10
FROM ?= 1
# `make test-changed SINCE=main`: changes since a commit; by default uncommitted changes.
SINCE ?= HEAD
# The changes of one row: make history TABLE=shop.orders HISTORY_FLAGS='--where id=7 --last 40'
LAKE ?= data/lake/shop
TABLE ?=
HISTORY_FLAGS ?=

BIN := .venv/bin
# Runs before every target, and takes milliseconds if .venv is up to date. It compares the content of requirements.lock and
# pyproject.toml; make could compare only times, which git resets.
BOOTSTRAP = command -v $(PYTHON) >/dev/null || { echo "[setup] $(PYTHON) not found; choose another one with: make PYTHON=/path/to/python3" >&2; exit 1; }; \
	$(PYTHON) scripts/bootstrap.py

ifndef V
.SILENT:
endif
MAKEFLAGS += --no-print-directory
# Targets share one .venv, and Spark uses every core.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help jar wheel venv venv-and-java demo test test-fast test-core test-all test-changed bench bench-end-to-end \
	bench-tables bench-growth bench-memory bench-follow-memory bench-start bench-days bench-latency bench-many-topics bench-warm-batch \
	bench-quick bench-beside bench-peers bench-readers bench-requests bench-snapshot bench-verify lint format lock history docs docs-site screenshots ui kafka-demo clean

# Dagster reads dagster.yaml from DAGSTER_HOME, and stores its data there.
demo ui kafka-demo: export DAGSTER_HOME := $(CURDIR)
# The broker is in cdc_pipeline_tests, which is not installed.
kafka-demo: export PYTHONPATH := $(CURDIR)

help: ## list the targets
	sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 26

venv: ## create or update .venv from requirements.lock
	$(BOOTSTRAP)

# For targets that start Spark: reports a missing Java before the slow installation.
venv-and-java:
	$(BOOTSTRAP) --java

demo: venv-and-java ## ingest $CDC_CAPTURES into $CDC_LAKE and show the mirrors
	$(BIN)/cdc-pipeline run shop

# Tiers: cdc_pipeline_tests/support/tiers.py.
test: test-fast test-core ## run the tests that CI runs: ten minutes

# $(call pytest,MARKERS,OPTIONS): two processes, each with its own Spark session if a test needs one. Exit status 5 (no test
# selected) is a success if TEST_FLAGS is set.
define pytest
	$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -m "$(1)" $(2) $(TEST_FLAGS) || \
		{ status=$$?; [ $$status -eq 5 ] && [ -n '$(subst ','\'',$(TEST_FLAGS))' ] || exit $$status; }
endef

test-fast: venv ## run the tests that need no Java: two minutes
	$(call pytest,not jvm and not long)

test-core: venv-and-java
	$(call pytest,core,--durations=10)

test-all: venv-and-java ## run every test in ten shards, or one shard: SHARD=2/10
ifneq ($(SHARD),)
	$(call pytest,,--durations=10 --shard=$(SHARD))
else
	for shard in $$(seq $(FROM) $(SHARDS)); do \
		$(MAKE) test-all SHARD=$$shard/$(SHARDS) || { echo "continue with: make test-all FROM=$$shard" >&2; exit 1; }; \
	done
endif

test-changed: venv-and-java ## run the tests that your changes can affect
	$(BIN)/python -m cdc_pipeline_tests.support.changed --since $(SINCE) -- $(TEST_FLAGS)

bench: venv-and-java ## time of raw and decoding, over the floor job
	$(BIN)/python -m benchmarks.decode $(BENCH_FLAGS)

bench-end-to-end: venv-and-java ## events per CPU-second and per second, from a broker to the mirror
	$(BIN)/python -m benchmarks.end_to_end $(BENCH_FLAGS)

bench-tables: venv-and-java ## time of a batch over 200 tables, over one table
	$(BIN)/python -m benchmarks.tables $(BENCH_FLAGS)

bench-growth: venv-and-java ## time of a cut into ten million rows, over one million
	$(BIN)/python -m benchmarks.growth $(BENCH_FLAGS)

bench-memory: venv-and-java ## peak memory of a run for five million events, over half a million
	$(BIN)/python -m benchmarks.memory $(BENCH_FLAGS)

bench-follow-memory: venv-and-java ## memory of a run that follows its topic, after 400 batches over after 40
	$(BIN)/python -m benchmarks.follow_memory $(BENCH_FLAGS)

bench-start: venv-and-java ## time from launch to the first record, and of a run without new records
	$(BIN)/python -m benchmarks.start $(BENCH_FLAGS)

bench-days: venv-and-java ## time of the 40,000th small batch into a lake, over the tenth
	$(BIN)/python -m benchmarks.days $(BENCH_FLAGS)

bench-latency: venv-and-java ## time from produce to mirror at 1000 events a second, under Dagster's daemon
	$(BIN)/python -m benchmarks.latency $(BENCH_FLAGS)

bench-many-topics: venv-and-java ## time of a small batch from 300 topics of a broker, when warm
	$(BIN)/python -m benchmarks.many_topics $(BENCH_FLAGS)

bench-warm-batch: venv-and-java ## time of a batch of 50 changes, when warm
	$(BIN)/python -m benchmarks.warm_batch $(BENCH_FLAGS)

bench-beside: venv-and-java ## figures of another commit and of this checkout, in turn: COMMIT=3f5c2ef
	$(BIN)/python -m benchmarks.beside $(or $(COMMIT),$(error name the other commit: make bench-beside COMMIT=3f5c2ef)) $(BENCH_FLAGS)

bench-peers: venv-and-java ## events per CPU-second beside a plain Spark job and Paimon on Flink (needs Maven)
	$(BIN)/python -m benchmarks.peers $(BENCH_FLAGS)

bench-readers: venv-and-java ## time to read a mirror after 1,000 small cuts, over a fresh table
	$(BIN)/python -m benchmarks.readers $(BENCH_FLAGS)

bench-requests: venv-and-java ## requests to S3 of runs and of a warm batch, and its time over a local lake's
	$(BIN)/python -m benchmarks.requests $(BENCH_FLAGS)

bench-snapshot: venv-and-java ## time to load an export and to begin a mirror with it, over Spark appending its lines
	$(BIN)/python -m benchmarks.snapshot $(BENCH_FLAGS)

bench-verify: venv-and-java ## time and memory to verify a million changes by their before images
	$(BIN)/python -m benchmarks.verify $(BENCH_FLAGS)

bench-quick: venv-and-java ## start, warm batch, and 300,000 events end to end: ten minutes
	$(BIN)/python -m benchmarks.quick $(BENCH_FLAGS)

jar: venv-and-java ## compile java/ into the jar of the package, or compare both: JAR_FLAGS=--check (needs javac 17)
	$(BIN)/python scripts/log_store_jar.py $(JAR_FLAGS)

wheel: venv ## build the wheel into dist/
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	ls dist/*.whl

lint: venv ## ruff check, ruff format --check, mypy, lint-imports
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	# separately: without file names mypy checks the packages of pyproject.toml
	$(BIN)/mypy scripts/*.py
	# without a cache, which saves no time and is one more folder to ignore
	$(BIN)/lint-imports --no-logo --no-cache

format: venv ## format the code and apply ruff's fixes
	# `make lint` reports what remains
	$(BIN)/ruff check --quiet --fix --exit-zero .
	$(BIN)/ruff format .

# --universal: one lock for every Python and system, with markers. --python-version: the oldest supported Python.
# The --no-emit flags and --no-header keep the local package index and command line out of the file.
COMPILE = pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-annotate --no-header $(LOCK_FLAGS)

lock: ## update the three locks from pyproject.toml (needs the package index)
	set -e; uv=uv; \
	if ! command -v uv >/dev/null; then \
		echo "[lock] uv is not on PATH; installing it into a temporary environment ..."; \
		temporary=$$(mktemp -d); trap 'rm -rf "$$temporary"' EXIT; \
		$(PYTHON) -m venv "$$temporary"; \
		"$$temporary/bin/pip" install --quiet --disable-pip-version-check uv; \
		uv="$$temporary/bin/uv"; \
	fi; \
	"$$uv" $(COMPILE) --extra dev -o requirements.lock pyproject.toml; \
	"$$uv" $(COMPILE) --group docs -o requirements-docs.lock; \
	"$$uv" $(COMPILE) --extra glue --extra kafka --extra notify --extra s3 --extra ui --extra postgres --extra k8s --constraint requirements.lock \
		-o deploy/requirements.lock pyproject.toml; \
	for lock in requirements.lock requirements-docs.lock deploy/requirements.lock; do echo "[lock] $$lock: $$(grep -c '==' $$lock) pins"; done

history: venv ## print statements and changes of a table: make history LAKE=data/lake/shop TABLE=shop.orders
	$(BIN)/cdc-pipeline history $(TABLE) --lake $(dir $(LAKE:/=)) --name $(notdir $(LAKE:/=)) $(HISTORY_FLAGS)

docs: venv ## generate docs/pipeline.md and the rules in docs/dialects.md from their models
	$(BIN)/python scripts/pipeline_fields.py
	$(BIN)/python scripts/field_rules.py

# An environment of its own, so that `make venv` and CI do not install it.
.venv-docs/installed: requirements-docs.lock
	$(BOOTSTRAP) --check-only
	rm -rf .venv-docs
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-docs.lock
	touch $@

docs-site: .venv-docs/installed ## build the documentation site into site/
	# not --quiet, with which --strict counts no warnings
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict
	echo "open site/index.html, or with search: $(PYTHON) -m http.server --directory site"

screenshots: venv-and-java ## take the pictures in docs/images again (needs Chromium)
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
		{ echo "chromium is not on PATH; on Debian: apt-get install chromium" >&2; exit 1; }
	CDC_PICTURES=docs/images $(BIN)/python -m pytest cdc_pipeline_tests/integration/test_ui.py \
		cdc_pipeline_tests/integration/test_daemon.py

ui: venv-and-java ## run Dagster's webserver and daemon on PORT (3000) until Ctrl-C
	exec $(BIN)/python scripts/ui.py --port $(PORT)

# SPEED: records a second.
kafka-demo: venv-and-java ## run a Kafka broker, a shop that writes to it, and Dagster's UI and daemon until Ctrl-C
	exec $(BIN)/python scripts/kafka_demo.py --port $(PORT) --speed $(SPEED)

# Deletes generated files only. data/lake and Dagster's history (storage/, history/, schedules/, logs/) are results: delete
# them by hand.
clean: ## delete the environments and files of the tools
	rm -rf .venv .venv-docs site dist build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -path ./data -prune -o -path ./.git -prune -o -type d -name __pycache__ -exec rm -rf {} +
