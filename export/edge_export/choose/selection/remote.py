"""Candidates of a bundle timed on another machine over ssh, and the times written into the bundle.

One ssh command does it: the bundle goes in on its standard input, is kept in a private temporary folder for as long as
it is measured, and one line of JSON comes back. The other machine needs Python and edge-runtime with an engine, and
nothing of the export toolchain. Keys, users and ports are ssh's own business (``~/.ssh/config``).
"""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from edge_export.package.rewrite import Signer, rewrite
from edge_runtime.errors import BundleError, ConfigError, ConnectionFailed, EngineError
from edge_runtime.manifest import Manifest, Variant
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.tuning.timing import Measurement, TimingPlan

SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15")
"""Never asks for a password: a build that waits for one in the background would wait for ever."""

TIMEOUT_S = 600.0
"""For all of it; a Raspberry Pi needs some seconds per variant to try it and three per variant to time it."""

_SSH_FAILED = 255
_NOT_FOUND = 127


def measure_on(
    host: str,
    bundle: str | Path,
    *,
    python: str = "python3",
    plan: TimingPlan | None = None,
    ssh: Sequence[str] = SSH,
    timeout_s: float = TIMEOUT_S,
) -> Measurement:
    """Time every variant of a bundle that runs on another machine, there.

    Args:
        host: the machine as ssh takes it, for example ``pi@kitchen``.
        bundle: the ``.edge`` file here.
        python: the interpreter on the other machine that has edge-runtime installed.
        plan: how long to measure.
        ssh: the command up to the host.
        timeout_s: after which it is given up.

    Raises:
        ConfigError: not a host, or ssh is not installed here, or edge-runtime is not installed there.
        BundleError: the bundle cannot be opened, here or there.
        ConnectionFailed: the host cannot be reached, or did not end in time.
        EngineError: the measurement failed there.
    """
    if not host or host.startswith("-") or host.split() != [host]:
        raise ConfigError(f"'{host}' is not a host; give it as ssh takes it, for example pi@kitchen")
    bundle, plan = Path(bundle), plan or TimingPlan()
    with open_bundle(bundle) as opened:
        digest = opened.digest
    command = [*ssh, host, _program(python, plan)]
    try:
        with bundle.open("rb") as content:
            done = subprocess.run(  # noqa: S603 - the command line is the caller's
                command, stdin=content, capture_output=True, check=False, timeout=timeout_s
            )
    except FileNotFoundError as error:
        raise ConfigError(f"cannot start {command[0]}: {error.strerror}; install an ssh client") from error
    except OSError as error:
        raise ConfigError(f"cannot start {command[0]} or read {bundle}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise ConnectionFailed(f"{host} did not end measuring within {timeout_s:g} s; give it longer") from error
    found = _result(host, python, done)
    if found.digest != digest:
        raise BundleError(f"{host} measured another file than {bundle.name}, or it arrived damaged; measure again")
    return found


def _program(python: str, plan: TimingPlan) -> str:
    """Write the one shell command: any POSIX shell, no temporary file left behind, the exit code of the measurement."""
    measure = (
        f'{shlex.quote(python)} -m edge_runtime time "$d/bundle.edge" --json '
        f"--rounds {plan.rounds} --block-ms {plan.block_s * 1e3:g}"
    )
    return (
        "umask 077; d=$(mktemp -d) || exit 1; trap 'rm -rf \"$d\"' EXIT; trap 'exit 1' HUP INT TERM; "
        f'cat > "$d/bundle.edge" || exit 1; {measure} < /dev/null'
    )


def _result(host: str, python: str, done: subprocess.CompletedProcess[bytes]) -> Measurement:
    noise = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    last = noise[-1][:300] if noise else f"exit code {done.returncode}, and not a word"
    if done.returncode == _SSH_FAILED:
        raise ConnectionFailed(f"cannot reach {host} over ssh: {last}")
    if done.returncode == _NOT_FOUND:
        raise ConfigError(f"{host} has no '{python}'; name the interpreter that has edge-runtime ({last})")
    if done.returncode and "No module named" in last:
        raise ConfigError(
            f"{python} on {host} has no edge-runtime that can measure ({last}); "
            'run there: pip install --upgrade "edge-runtime[onnx,tflite]"'
        )
    if done.returncode:
        raise EngineError(f"measuring on {host} failed: {last}")
    # A login shell may greet on standard output; the answer is the last line.
    lines = done.stdout.decode("utf-8", "replace").splitlines() or [""]
    try:
        return Measurement.from_json(lines[-1])
    except ValueError as error:
        raise EngineError(f"{host} answered with something else than figures: {lines[-1][:80]!r}") from error


def record(
    bundle: str | Path,
    measurement: Measurement,
    *,
    machine: str = "",
    signer: Signer | None = None,
    out: str | Path | None = None,
) -> Path:
    """Write figures into a bundle, under `edge_runtime.manifest.Variant.measured`.

    Nothing else in it changes. The manifest is signed, so a signature has to be made again.

    Args:
        bundle: the ``.edge`` file that was measured.
        measurement: result of `measure_on`, or of `edge_runtime.model.tuning.timing.measure_bundle` here.
        machine: the name under which the figures stand; empty takes that of the board or processor.
        signer: makes the signature.
        out: the file to write; None replaces the bundle in one step.

    Returns:
        Where it was written.

    Raises:
        BundleError: the figures are of another file, or it cannot be written.
        ConfigError: the bundle is signed and there is no signer.
    """
    with open_bundle(Path(bundle)) as opened:
        if measurement.digest != opened.digest:
            raise BundleError(f"the figures are of another file than {Path(bundle).name}; measure this one")
    key = machine or measurement.machine.label

    def with_figures(before: Manifest) -> Manifest:
        variants = tuple(_with_metrics(variant, measurement, key) for variant in before.variants)
        return dataclasses.replace(before, variants=variants)

    return rewrite(bundle, with_figures, signer=signer, out=out)


def _with_metrics(variant: Variant, measurement: Measurement, key: str) -> Variant:
    figures: dict[str, float] = {}
    for timing in measurement.timings:
        if timing.name != variant.name:
            continue
        mark = "" if timing.threads == 1 else f"_{timing.threads}_threads"
        figures |= {
            f"p50_us{mark}": round(timing.p50_us, 2),
            f"p95_us{mark}": round(timing.p95_us, 2),
            f"cpu_us{mark}": round(timing.cpu_us, 2),
            f"ratio{mark}": round(timing.ratio, 4),
        }
        if timing.peak_rss_kb:
            figures["peak_rss_kb"] = float(timing.peak_rss_kb)
    return dataclasses.replace(variant, measured={**variant.measured, key: figures}) if figures else variant
