"""``edge-runtime serve``: bundles behind the Open Inference Protocol, for other devices on the network."""

from __future__ import annotations

import resource
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import BundlePath, Count, ExistingFile, Port, Seconds
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command

_OWN_FILES = 64  # besides connections: libraries, models, the loop


@dataclass(frozen=True, kw_only=True)
class ServeOptions(CommandOptions):
    bundles: tuple[BundlePath, ...] = arguments.bundle()
    trusted_key: tuple[ExistingFile, ...] = arguments.trusted_key(one_of="trust")
    allow_unsigned: bool = option("serve unsigned bundles", default=False, one_of="trust")
    host: str = option("address to listen on (default: 127.0.0.1, this machine only)", "127.0.0.1")
    port: Port = option("0 lets the system choose", 8000)
    variant: str = arguments.variant()
    threads: Count = option("threads of the engine", 1)
    max_batch: Count = option("windows in one call of the engine", 32)
    batch_delay_ms: Seconds = option("how long a request waits for others while the model is idle (default: 0)", 0.0)
    max_connections: Count = option("connections at a time; beyond it, the idlest one makes room", 4096)
    max_connections_per_address: Count | None = option(
        "of one address; more are answered 503 (default: no limit)", None, "N"
    )
    max_sequences: Count = option(
        "of a model with states: sequences at a time; beyond it, the least used one ends", 10_000
    )
    sequence_idle_s: Seconds = option("of a model with states: a sequence without a request for so long ends", 60.0)
    metrics: bool = option("answer /metrics too, for Prometheus; with the token where one is set", default=False)
    token_file: ExistingFile | None = option("file with the bearer token that callers must send", None)
    cert_file: ExistingFile | None = option("certificate for TLS, with --key-file", None)
    key_file: ExistingFile | None = option("private key for TLS", None)
    triton_repository: Path | None = option(
        "serve nothing: write the ONNX files there, for NVIDIA Triton (docs/my-cloud.md)", None, "DIR", one_of="other"
    )
    print_kserve: str | None = option(
        "serve nothing: print the KServe InferenceService of such a folder at this address", None, "URI", one_of="other"
    )


def _allow_files(number: int) -> None:
    """Raise the soft limit of open files, often 1,024, as far as it is needed and the hard one lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@command(
    "serve",
    "answer the Open Inference Protocol over HTTP with a bundle's model",
    "Answer the Open Inference Protocol v2 over HTTP: a gateway can so be the cloud of smaller "
    "devices. SIGINT or SIGTERM stops it after the requests under way, within 5 s. Whose bundles may run must be "
    "said: with --trusted-key, or with --allow-unsigned.",
    "serve examples/exercise-watch/teacher.edge --allow-unsigned --port 8000",
    "serve teacher.edge --trusted-key signer.pem --triton-repository models",
    "serve teacher.edge --trusted-key signer.pem --print-kserve s3://bucket/models",
)
def run(options: ServeOptions) -> CommandAnswer | int:
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
                    trusted_keys=options.trusted_key,
                    unsigned="allow" if options.allow_unsigned else "refuse",
                    variant=options.variant,
                    threads=options.threads,
                    max_batch=options.max_batch,
                )
            )
            for path in options.bundles
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
        answer = CommandAnswer(
            {"serving": list(served), "url": server.url},
            f"serving {', '.join(served)} on {server.url} (stop with Ctrl-C)",
        )
        answer.print(as_json=options.json)
        sys.stdout.flush()
        stop.wait()
    for model in models:
        model.close()
    return 0


def _deploy(options: ServeOptions) -> CommandAnswer:
    """Write model repositories, or print services; a bundle is checked as if it were served."""
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415 - as in `run`
    from edge_runtime.model.bundle.load import load_engine  # noqa: PLC0415
    from edge_runtime.model.bundle.signature import load_keys  # noqa: PLC0415
    from edge_runtime.model.engines.base import EngineOptions  # noqa: PLC0415
    from edge_runtime.operate.server import deployment  # noqa: PLC0415

    trusted = None if options.allow_unsigned else load_keys(options.trusted_key)
    services: list[str] = []
    written: list[dict[str, str]] = []
    for path in options.bundles:
        with open_bundle(path, trusted=trusted) as bundle:
            variant = deployment.onnx_variant(bundle, options.variant)
            if options.triton_repository is None:
                services.append(deployment.kserve_service(bundle.manifest.name, options.print_kserve or ""))
                continue
            load_engine(bundle, variant.name, EngineOptions()).close()  # in a child process first
            made = deployment.write_triton_repository(options.triton_repository, bundle, variant, options.max_batch)
            written.append({"folder": str(made), "variant": variant.name})
    if services:
        return CommandAnswer({"services": services}, "---\n".join(services).removesuffix("\n"))
    return CommandAnswer({"written": written}, ["{folder}: variant {variant}".format(**one) for one in written])
