"""``edge-runtime serve``: bundles behind the Open Inference Protocol, for other devices on the network."""

from __future__ import annotations

import argparse
import resource
import sys
import threading
from pathlib import Path
from typing import Any

from edge_runtime.tools.cli.arguments import add_trusted, bundle_path, count, existing_file, port, seconds

_OWN_FILES = 64  # besides connections: libraries, models, the loop


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "serve",
        help="answer the Open Inference Protocol over HTTP with a bundle's model",
        description=(
            "Answer the Open Inference Protocol v2 over HTTP: a gateway can so be the cloud of smaller devices. SIGINT "
            "or SIGTERM stops it after the requests under way, within 5 s. Whose bundles may run must be said: with "
            "--trusted-key, or with --allow-unsigned."
        ),
        epilog=(
            "examples:\n"
            "  edge-runtime serve examples/exercise-watch/teacher.edge --allow-unsigned --port 8000\n"
            "  edge-runtime serve teacher.edge --trusted-key signer.pem --triton-repository models\n"
            "  edge-runtime serve teacher.edge --trusted-key signer.pem --print-kserve s3://bucket/models"
        ),
    )
    parser.add_argument("bundle", type=bundle_path, nargs="+", metavar="BUNDLE", help="the .edge file, or several")
    trust = parser.add_mutually_exclusive_group()
    add_trusted(trust)
    trust.add_argument("--allow-unsigned", action="store_true", help="serve unsigned bundles")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine only)"
    )
    parser.add_argument("--port", type=port, default=8000, help="0 lets the system choose (default: %(default)s)")
    parser.add_argument(
        "--variant", default="auto", help="variant of the bundle to run (default: the best for this machine)"
    )
    parser.add_argument("--threads", type=count, default=1, help="threads of the engine (default: %(default)s)")
    parser.add_argument(
        "--max-batch", type=count, default=32, help="windows in one call of the engine (default: %(default)s)"
    )
    parser.add_argument(
        "--batch-delay-ms",
        type=seconds,
        default=0.0,
        help="how long a request waits for others; while the model is busy they gather anyway (default: %(default)s)",
    )
    parser.add_argument(
        "--max-connections",
        type=count,
        default=4096,
        help="connections at a time; a newcomer then takes the place of the one that is idle or slow for the longest "
        "time (default: %(default)s)",
    )
    parser.add_argument(
        "--max-connections-per-address",
        type=count,
        metavar="N",
        help="connections of one address at a time; more are answered 503 (default: no limit of its own)",
    )
    parser.add_argument(
        "--max-sequences",
        type=count,
        default=10_000,
        help="of a model with states: sequences at a time; beyond it, a new one ends the least recently used of the "
        "address with the most (default: %(default)s)",
    )
    parser.add_argument(
        "--sequence-idle-s",
        type=seconds,
        default=60.0,
        help="of a model with states: a sequence without a request for so long is forgotten (default: %(default)s)",
    )
    parser.add_argument(
        "--metrics", action="store_true", help="answer /metrics too, for Prometheus; with the token where one is set"
    )
    parser.add_argument("--token-file", type=existing_file, help="file with the bearer token that callers must send")
    parser.add_argument("--cert-file", type=existing_file, help="certificate for TLS, with --key-file")
    parser.add_argument("--key-file", type=existing_file, help="private key for TLS")
    other = parser.add_mutually_exclusive_group()
    other.add_argument(
        "--triton-repository",
        type=Path,
        metavar="DIR",
        help="serve nothing: write the bundles' ONNX files there, as models for NVIDIA Triton (docs/my-cloud.md)",
    )
    other.add_argument(
        "--print-kserve",
        metavar="URI",
        help="serve nothing: print the KServe InferenceService that runs such a folder, which lies at this address",
    )
    parser.set_defaults(run=run)


def _allow_files(number: int) -> None:
    """Raise the soft limit of open files, often 1,024, as far as it is needed and the hard one lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run(options: argparse.Namespace) -> int:
    """Serve until a signal comes, or write the files with which others serve."""
    if options.triton_repository is not None or options.print_kserve is not None:
        return _deploy(options)
    from edge_runtime.base.system.signals import stopped_by_signals  # noqa: PLC0415
    from edge_runtime.errors import ConfigError  # noqa: PLC0415
    from edge_runtime.model.serving.config import ModelConfig  # noqa: PLC0415
    from edge_runtime.model.serving.loading import load_model  # noqa: PLC0415
    from edge_runtime.operate.observe.exposition import render_server  # noqa: PLC0415
    from edge_runtime.operate.server.bundle_model import served_model  # noqa: PLC0415
    from edge_runtime.operate.server.server import ServeConfig, Server  # noqa: PLC0415

    try:
        config = ServeConfig(
            host=options.host,
            port=options.port,
            max_queue_delay_ms=options.batch_delay_ms,
            max_connections=options.max_connections,
            max_connections_per_address=options.max_connections_per_address,
            metrics=options.metrics,
            token_file=options.token_file,
            cert_file=options.cert_file,
            key_file=options.key_file,
        )
        models = [
            load_model(
                ModelConfig(
                    bundle=path,
                    trusted_keys=tuple(options.trusted_keys),
                    unsigned="allow" if options.allow_unsigned else "refuse",
                    variant=options.variant,
                    threads=options.threads,
                    max_batch=options.max_batch,
                )
            )
            for path in options.bundle
        ]
    except ValueError as error:
        raise ConfigError(f"serve: {error}") from error
    _allow_files(config.max_connections + _OWN_FILES)
    stop = threading.Event()
    served = {
        model.manifest.name: served_model(
            model, options.max_batch, max_sequences=options.max_sequences, idle_s=options.sequence_idle_s
        )
        for model in models
    }
    if len(served) < len(models):
        raise ConfigError("serve: two bundles have the same name; serve them on ports of their own")
    with stopped_by_signals(stop.set), Server(served, config, render=render_server) as server:
        print(f"serving {', '.join(served)} on {server.url} (stop with Ctrl-C)", flush=True)
        stop.wait()
    for model in models:
        model.close()
    return 0


def _deploy(options: argparse.Namespace) -> int:
    """Write model repositories, or print services; a bundle is checked as if it were served."""
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415 - as in `run`
    from edge_runtime.model.bundle.load import load_engine  # noqa: PLC0415
    from edge_runtime.model.bundle.signature import load_keys  # noqa: PLC0415
    from edge_runtime.model.engines.base import EngineOptions  # noqa: PLC0415
    from edge_runtime.operate.server import deployment  # noqa: PLC0415

    trusted = None if options.allow_unsigned else load_keys(options.trusted_keys)
    services: list[str] = []
    for path in options.bundle:
        with open_bundle(path, trusted=trusted) as bundle:
            variant = deployment.onnx_variant(bundle, options.variant)
            if options.print_kserve is not None:
                services.append(deployment.kserve_service(bundle.manifest.name, options.print_kserve))
                continue
            load_engine(bundle, variant.name, EngineOptions()).close()  # in a child process first
            made = deployment.write_triton_repository(options.triton_repository, bundle, variant, options.max_batch)
            print(f"{made}: variant {variant.name}")
    if services:
        sys.stdout.write("---\n".join(services))
    return 0
