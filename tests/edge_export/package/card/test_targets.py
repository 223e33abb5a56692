"""True values from files set the intervals of a regression that is packed, and measure them on keys left out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import orjson
import pytest
from edge_export.cli import main
from onnx import TensorProto, helper, numpy_helper

from edge_runtime.app.python_api import open_model, replay
from edge_runtime.io.recordings.reader import columns_of
from edge_runtime.manifest.outputs import RegressionOutput
from edge_runtime.model.bundle.bundle import open_bundle

pytestmark = pytest.mark.usefixtures("models_in_this_process")

CARD = """
name = "heat"
origin = { name = "made up", source = "this test", licence = "CC0" }
signal = { rate_hz = 10, channels = ["a", "b"] }
window = 10
hop = 10

[[stages]]
inputs = [{ rows = 10, layout = "samples-first" }]

[task]
type = "regression"
quantities = [{ name = "air", unit = "Cel", offset = 5, scale = 2 }]
"""
Floats = npt.NDArray[np.float64]
WINDOWS, KEYS = 40, tuple("rstuvwxyz")


def machine(name: str) -> tuple[Floats, Floats]:
    """Samples (n, 2) of a machine and the temperature of each: linear, with an error that is the machine's own."""
    random = np.random.default_rng(ord(name))
    rows = np.repeat(random.normal(size=(WINDOWS, 2)), 10, axis=0) + random.normal(0, 0.1, (10 * WINDOWS, 2))
    noise = np.repeat(random.normal(0, 0.5, WINDOWS), 10) + random.normal(0, 0.1)
    return rows, 20 + rows @ [3.0, -2.0] + noise


def fitted() -> bytes:
    """Fit a linear regression by least squares on three machines; an ONNX file of it: number = value / 2 + 5."""
    data = [machine(name) for name in "abc"]
    means = np.concatenate([rows.reshape(-1, 10, 2).mean(axis=1) for rows, _ in data])
    values = np.concatenate([air.reshape(-1, 10).mean(axis=1) for _, air in data])
    weights, *_ = np.linalg.lstsq(np.column_stack([means, np.ones(len(means))]), values / 2 + 5, rcond=None)
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("Gemm", ["mean", "w", "b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "heat",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 10, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])],
        [
            numpy_helper.from_array(weights[:2, None].astype(np.float32), "w"),
            numpy_helper.from_array(weights[2:].astype(np.float32), "b"),
        ],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


class Pack:
    """``edge-export pack`` of the regression."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        (folder / "heat.onnx").write_bytes(fitted())
        (folder / "card.toml").write_text(CARD)

    def __call__(self, *more: str) -> tuple[int, str]:
        named = [str(self.folder / one) if one.endswith((".csv", ".parquet")) else one for one in more]
        files = [str(self.folder / one) for one in ("heat.onnx", "card.toml", "heat.edge")]
        code = main(["pack", files[0], "--card", files[1], "-o", files[2], *named])
        said = self._capsys.readouterr()
        return code, said.err if code else said.out

    def half_width(self) -> float:
        with open_bundle(self.folder / "heat.edge") as bundle:
            assert isinstance(bundle.manifest.output, RegressionOutput)
            return bundle.manifest.output.quantities[0].half_width

    def write(self, name: str, column: str = "air", keys: tuple[str, ...] = KEYS, *, cell: str = "") -> str:
        lines = [f"t,key,a,b,{column}"]
        for key in keys:
            rows, air = machine(key)
            cells = [
                f"{i / 10},{key},{a},{b},{cell or value}"
                for i, ((a, b), value) in enumerate(zip(rows, air, strict=True))
            ]
            lines += cells
        (self.folder / name).write_text("\n".join(lines) + "\n")
        return name


@pytest.fixture
def pack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pack:
    return Pack(tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("column", ["air", "air (Cel)"])
def test_a_column_of_the_recordings_sets_the_interval_and_tells_how_it_holds_on_keys_left_out(
    pack: Pack, tmp_path: Path, column: str
) -> None:
    code, said = pack("--measured", pack.write("day.csv", column))
    assert code == 0, said
    (line,) = [one for one in said.splitlines() if one.startswith("air: half width")]
    assert f"for 0.9, of {WINDOWS * len(KEYS)} windows; of each of 9 keys, by the half width of the others: " in line
    assert "8 golden steps recorded" in said
    inside = float(line.partition("others: ")[2].partition(" inside")[0])
    assert inside == pytest.approx(0.9, abs=0.04)
    half_width = pack.half_width()
    assert half_width == pytest.approx(1.645 * math.hypot(0.5, 0.1), rel=0.15), "of the noise that was put in"
    pack.write("new.csv", keys=tuple("ABCDEFGH"))
    with open_model(tmp_path / "heat.edge") as model:
        answers = list(replay(model, tmp_path / "new.csv"))
    true = {name: machine(name)[1].reshape(-1, 10).mean(axis=1) for name in "ABCDEFGH"}
    held = [orjson.loads(one.to_json())["values"]["air"] for one in answers]
    shares = [
        found["low"] <= true[one.key][round(one.start)] <= found["high"]
        for one, found in zip(answers, held, strict=True)
    ]
    assert len(shares) == 8 * WINDOWS
    assert np.mean(shares) == pytest.approx(0.9, abs=0.05), "of machines that set nothing"


@pytest.mark.slow
def test_a_table_of_targets_sets_the_same_interval_as_a_column_of_steps(pack: Pack, tmp_path: Path) -> None:
    pack.write("day.csv", "other")
    rows = ["key,start,end,air"]
    for key in KEYS:
        values = machine(key)[1].reshape(-1, 10).mean(axis=1)
        rows += [f"{key},{i},{i + 1},{value}" for i, value in enumerate(values.tolist())]
    (tmp_path / "targets.csv").write_text("\n".join(rows) + "\n")
    code, said = pack("--measured", "day.csv", "--targets", "targets.csv")
    assert code == 0, said
    by_table = pack.half_width()
    assert pack("--measured", pack.write("day.csv"))[0] == 0
    assert by_table == pytest.approx(pack.half_width(), rel=1e-5)


@pytest.mark.slow
def test_parquet_has_columns_of_targets_too(pack: Pack, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    columns = columns_of(tmp_path / pack.write("day.csv"))
    typed = {name: list(cells) if name == "key" else list(map(float, cells)) for name, cells in columns.items()}
    parquet.write_table(arrow.table(typed), tmp_path / "day.parquet")
    assert pack("--measured", "day.csv")[0] == 0
    half_width = pack.half_width()
    assert pack("--measured", "day.parquet")[0] == 0
    assert pack.half_width() == pytest.approx(half_width, rel=1e-5)


@pytest.mark.slow
def test_the_last_value_of_a_window_may_be_meant(pack: Pack) -> None:
    assert pack("--measured", pack.write("day.csv"))[0] == 0
    mean = pack.half_width()
    assert pack("--measured", "day.csv", "--target-at", "end")[0] == 0
    assert pack.half_width() > mean, "one sample's value scatters more than the mean of ten"


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        (
            "water",
            "",
            "has no column 'air' or 'air (Cel)' with the true values; it has t, key, a, b, water",
        ),
        ("air", "inf", "the true value 'inf' of air is no finite number; correct it, or leave the cell empty"),
        ("air", "warm", "the true value 'warm' of air is no finite number"),
        ("air", "nan", "0 windows with a target cannot keep a coverage of 0.9; it needs 9 or more"),
    ],
    ids=["missing", "infinite", "text", "all empty"],
)
def test_targets_that_are_none_are_refused(pack: Pack, column: str, cell: str, words: str) -> None:
    code, said = pack("--measured", pack.write("day.csv", column, cell=cell))
    assert code == 2
    assert words in said
    assert not (pack.folder / "heat.edge").exists()


@pytest.mark.slow
def test_another_column_may_name_the_keys(pack: Pack, tmp_path: Path) -> None:
    text = (tmp_path / pack.write("day.csv")).read_text()
    (tmp_path / "day.csv").write_text(text.replace("t,key,", "t,machine,", 1))
    code, said = pack("--measured", "day.csv", "--key-column", "machine")
    assert code == 0, said
    assert "of each of 9 keys" in said


def test_a_single_key_is_named_as_what_was_not_measured(pack: Pack) -> None:
    code, said = pack("--measured", pack.write("day.csv", keys=("r",)))
    assert code == 0
    assert "of one key; give recordings of several keys" in said


def test_true_values_of_what_has_none_or_states_its_own_are_refused(pack: Pack, tmp_path: Path) -> None:
    pack.write("day.csv")
    assert (
        "--targets needs the recordings that it is about" in pack("--recording", "day.csv", "--targets", "day.csv")[1]
    )
    (tmp_path / "card.toml").write_text(CARD.replace("scale = 2", "scale = 2, half_width = 1"))
    assert "quantity 'air' states half_width; leave it out of the card" in pack("--measured", "day.csv")[1]
    vector = CARD.partition("[task]")[0] + '[task]\ntype = "vector"\n'
    (tmp_path / "card.toml").write_text(vector)
    code, said = pack("--measured", "day.csv")
    assert code == 2
    assert "--measured sets the intervals of a regression, and [task] is vector" in said


def test_the_model_is_one_that_onnx_accepts() -> None:
    onnx.checker.check_model(onnx.load_model_from_string(fitted()), full_check=True)
