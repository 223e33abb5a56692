"""Review: what the page asks of kept cases, on the observers' thread, since it waits for a disk.

Answers of device and cloud are left out unless they are asked for, so that they do not lead who labels.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from edge_runtime.base.oip import Body
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.operate.observe.report import drawn_samples
from edge_runtime.operate.serving.answers import Refused, Reply
from edge_runtime.store.cases.case import Case
from edge_runtime.store.cases.export import export
from edge_runtime.store.cases.store import CaseStore

_MOST_LISTED: Final = 200
_MOST_EXPORTED_BYTES: Final = 16 * 2**20
"""Samples in one export over HTTP; the command has no such limit."""
_STATES: Final = ("open", "labelled", "all")


class Review:
    """Answers about cases.

    Args:
        store: gives the file of the cases; None where none are kept.
        fold_outbox: empties the outbox's log, where erased values may stand.
    """

    def __init__(self, store: Callable[[], CaseStore | None], fold_outbox: Callable[[], None]) -> None:
        self._found = store
        self._fold_outbox = fold_outbox

    @property
    def _store(self) -> CaseStore:
        store = self._found()
        if store is None:
            raise Refused(404, "this application keeps no cases now; add [cases] with a path, or see its log")
        return store

    def listed(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """List cases, ``?state=open&key=&limit=50``, and count them."""
        state = parameters.get("state", "open")
        if state not in _STATES:
            raise InputError("parameter", f"state must be one of {', '.join(_STATES)}")
        limit = str(parameters.get("limit", "50"))
        most = min(int(limit), _MOST_LISTED) if limit.isdecimal() else 50
        store = self._store
        return {"cases": store.summaries(state, most, parameters.get("key", "")), "counts": store.counts()}

    def one(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Describe a case, ``?id=``, and with ``&answers=1`` what device, cloud and a model on trial said."""
        case = self._case(parameters.get("id", ""))
        found: dict[str, Any] = {
            "id": case.id,
            "key": case.key,
            "start": case.start,
            "why": case.why,
            "label": case.label,
            "labels": case.contract.labels,
            "choices": case.contract.choices,
            "window": drawn_samples(case.samples, case.contract.rate_hz, case.contract.channels),
        }
        if parameters.get("answers"):
            found |= {"device": case.device, "cloud": case.cloud, "rival": case.rival and case.rival.new}
        return found

    def label(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Note a label, ``{"id": ID, "label": LABEL}``; an empty one takes it back."""
        case = self._case(asked.get("id", ""))
        label = asked.get("label")
        if not isinstance(label, str):
            raise InputError("label", "label must be a text")
        self._store.label(case.id, label, "page")
        return {"counts": self._store.counts()}

    def erase(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Erase the cases of ``{"key": KEY}``, or ``{"all": true}``."""
        key = asked.get("key")
        if asked.get("all") is not True and not isinstance(key, str):
            raise InputError("erase", 'say {"key": KEY} or {"all": true}')
        erased = self._store.erase(None if asked.get("all") is True else key)
        self._fold_outbox()
        return {"erased": erased}

    def exported(self, parameters: Mapping[str, Any]) -> Reply:
        """Give the labelled cases as a CSV file."""
        del parameters
        store = self._store
        if store.counts()["bytes"] > _MOST_EXPORTED_BYTES:
            raise Refused(413, "these are too many for a download; use edge-runtime review export APP.toml --out FILE")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cases.csv"
            try:
                export(store, path)
            except ConfigError as error:
                raise Refused(409, str(error)) from None
            data = path.read_bytes()
        headers = 'Content-Disposition: attachment; filename="reviewed.csv"\r\n'
        return Reply(200, Body((data,)), headers, content_type="text/csv; charset=utf-8")

    def _case(self, id_: object) -> Case:
        try:
            return self._store.one(str(id_))
        except InputError as error:
            raise Refused(404, str(error)) from None
