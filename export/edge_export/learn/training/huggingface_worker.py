"""Runs in an environment of its own, by path: turns a Hugging Face checkpoint into ONNX and says what it is.

It imports nothing of this project, since that environment pins other versions of everything. Arguments: the
checkpoint's folder, the folder to write to, channels, samples. Writes ``model.onnx`` and ``facts.json``.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

SERIES = frozenset({"PatchTSTForClassification", "PatchTSMixerForTimeSeriesClassification"})
"""Architectures that optimum has no export for, and torch's own exporter takes as they are."""


def main(checkpoint: str, out: str, channels: int, samples: int) -> None:
    """Export; an exception's last line is what the caller shows."""
    transformers: Any = importlib.import_module("transformers")
    config = transformers.AutoConfig.from_pretrained(checkpoint, local_files_only=True, trust_remote_code=False)
    architecture = (config.architectures or ["none"])[0]
    labels = [config.id2label[index] for index in range(config.num_labels)] if architecture not in SERIES else []
    facts: dict[str, Any] = {"architecture": architecture, "labels": labels, "preprocessor": {}}
    described = Path(checkpoint) / "preprocessor_config.json"
    if described.exists():
        facts["preprocessor"] = json.loads(described.read_text("utf-8"))
    target = Path(out) / "model.onnx"
    if architecture in SERIES:
        _series(transformers, checkpoint, architecture, target, channels, samples)
    elif architecture.endswith(("ForSequenceClassification", "ForAudioClassification")):
        exporters: Any = importlib.import_module("optimum.exporters.onnx")
        exporters.main_export(
            checkpoint,
            output=Path(out),
            task="audio-classification",
            do_validation=False,
            local_files_only=True,
            trust_remote_code=False,
        )
    else:
        raise SystemExit(f"architecture {architecture} classifies neither sound nor time series")
    Path(out, "facts.json").write_text(json.dumps(facts), "utf-8")


def _series(transformers: Any, checkpoint: str, architecture: str, target: Path, channels: int, samples: int) -> None:
    torch: Any = importlib.import_module("torch")
    model = getattr(transformers, architecture).from_pretrained(checkpoint, local_files_only=True, use_safetensors=True)
    if (model.config.num_input_channels, model.config.context_length) != (channels, samples):
        raise SystemExit(
            f"the checkpoint takes {model.config.num_input_channels} channels of {model.config.context_length} "
            f"samples, not {channels} of {samples}"
        )

    class Logits(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, past_values: Any) -> Any:
            return self.model(past_values=past_values).prediction_logits

    torch.onnx.export(
        Logits().eval(),
        (torch.zeros(2, samples, channels),),
        str(target),
        input_names=["past_values"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
