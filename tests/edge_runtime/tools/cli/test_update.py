"""``edge-runtime update``: what it shows, and what it leaves for the application to do."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from edge_runtime._version import __version__
from edge_runtime.operate.update import inbox, state
from edge_runtime.operate.update.config import UpdateConfig
from edge_runtime.operate.update.state import HeldBack, Installed, UpdateOutcome, UpdateState
from edge_runtime.operate.update.update_store import UpdateStore
from edge_runtime.tools.cli import main
from tests.edge_runtime.operate.update.devices import APP, Factory


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Factory:
    return Factory(tmp_path_factory.mktemp("factory"))


@pytest.fixture
def folder(factory: Factory, tmp_path: Path) -> Path:
    """A device whose application has run once."""
    folder = factory.device(tmp_path / "device")
    (folder / "app.toml").write_text(APP.format(model="", more=""))
    UpdateStore(folder / "updates").close()
    return folder


def write(folder: Path, made: UpdateState) -> None:
    store = UpdateStore(folder / "updates")
    store.change(lambda _: made)
    store.close()


def test_status_says_what_runs_and_what_is_held_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = str(folder / "app.toml")
    assert main(["update", "status", app]) == 0
    assert capsys.readouterr().out == f"running    watch/1, as configured; runtime {__version__}\n"
    running = Installed(name="watch", version=2, sha256="ab" * 32)
    held = HeldBack(name="watch", version=3, reason="it agrees on 12 % of 200 windows")
    ended = (
        UpdateOutcome(bundle="watch/2", sha256="ab" * 32, result="accepted", at_s=1.8e9),
        UpdateOutcome(
            bundle="watch/3", sha256="ef" * 32, result="rolled back", reason="it agrees on 12 %", at_s=1.8e9 + 60
        ),
    )
    made = UpdateState(
        running=running, held=(held,), highest={"watch": 2}, on_hold=True, last="what was", history=ended
    )
    write(folder, state.tried(made, Installed(name="watch", version=4, sha256="cd" * 32), "trial"))
    assert main(["update", "status", app]) == 3  # the last one was rolled back
    out = capsys.readouterr().out
    for line in (
        f"running    watch/2, sha256 abababababab; runtime {__version__}",
        "candidate  watch/4, trial, start 1",
        "held back  watch/3: it agrees on 12 % of 200 windows",
        "on hold    ",
        "highest    watch/2",
        "last       watch/4: trial",
        "ended      2027-01-15 08:01:00Z  watch/3  rolled back: it agrees on 12 %",
        "ended      2027-01-15 08:00:00Z  watch/2  accepted",
    ):
        assert line in out
    assert main(["update", "status", app, "--json"]) == 3
    told = orjson.loads(capsys.readouterr().out)
    assert (told["phase"], told["running"]["version"], told["candidate"]["version"]) == ("trial", 2, 4)


@pytest.mark.parametrize("action", ["hold", "apply", "rollback"])
def test_a_wish_is_left_for_the_application(folder: Path, action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["update", action, str(folder / "app.toml"), "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out) == {"asked": action, "within_s": 0.05}
    store = UpdateStore(folder / "updates", read_only=True)
    assert [request.action for _, request in inbox.requests(store)] == [action]


def test_a_bundle_is_verified_before_it_is_left_there(
    folder: Path, factory: Factory, capsys: pytest.CaptureFixture[str]
) -> None:
    app = str(folder / "app.toml")
    assert main(["update", "apply", app, str(factory.bundle(2, key="stranger"))]) == 1
    assert "is not trusted" in capsys.readouterr().err
    assert not list((folder / "updates/requests").iterdir())
    assert main(["update", "apply", app, str(factory.bundle(2))]) == 0
    assert (folder / "updates/requests/apply.edge").read_bytes() == factory.bundle(2).read_bytes()


def test_what_cannot_be_installed_is_said_at_once(
    folder: Path, factory: Factory, capsys: pytest.CaptureFixture[str]
) -> None:
    app = str(folder / "app.toml")
    assert main(["update", "apply", app, str(factory.bundle(1))]) == 0
    assert "watch/1 runs, or is being tried, already" in capsys.readouterr().out
    assert main(["update", "apply", app, str(factory.bundle(2, name="pump"))]) == 1
    assert "pump/2 is no update of watch" in capsys.readouterr().err
    assert not list((folder / "updates/requests").iterdir())
    held = HeldBack(name="watch", version=3, reason="it fails")
    write(folder, UpdateState(held=(held,), highest={"watch": 9}))
    assert main(["update", "apply", app, str(factory.bundle(3))]) == 0  # an operator outranks both


def test_an_application_without_updates_has_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (folder / "app.toml").read_text()
    (folder / "app.toml").write_text(text[: text.index("[update]")])
    assert main(["update", "status", str(folder / "app.toml")]) == 2
    assert "has no table [update]" in capsys.readouterr().err


def test_a_wish_needs_an_application_that_has_run(
    folder: Path, factory: Factory, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "app.toml").write_text((folder / "app.toml").read_text().replace('"updates"', '"elsewhere"'))
    assert main(["update", "hold", str(folder / "app.toml")]) == 2
    assert "start one first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"drop": None}, "bundles must come from somewhere"),
        ({"topic": "a/b"}, "broker goes with topic"),
        ({"broker": "b"}, "broker goes with topic"),
        ({"broker": "b", "topic": "a/#"}, "is no topic"),
        ({"token_file": Path("t")}, "token_file needs hosts"),
        ({"key_file": Path("k")}, "key_file needs cert_file"),
        ({"min_agreement": 1.1}, "min_agreement must be 0 to 1"),
        ({"compare_share": 0.0}, "compare_share must be above 0"),
        ({"max_failed_starts": 0}, "max_failed_starts must be at least 1"),
        ({"poll_s": 0.0}, "poll_s must be above 0"),
        ({"trial_windows": -1}, "trial_windows must not be negative"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], complaint: str) -> None:
    values: dict[str, object] = {"folder": Path("u"), "drop": Path("d")}
    with pytest.raises(ValueError, match=complaint):
        UpdateConfig(**values | wrong)  # type: ignore[arg-type]
