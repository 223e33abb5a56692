"""Answer a recording, window by window."""

from edge_runtime import open_model, replay

with open_model("watch.edge") as model:
    for prediction in replay(model, "recordings.npz"):
        mark = "hard" if prediction.hard else ""
        print(f"{prediction.key}  {prediction.start:5.1f} s  {prediction.label}  {prediction.confidence:.2f} {mark}")
