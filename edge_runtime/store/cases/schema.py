"""Tables and statements of the file of cases."""

from __future__ import annotations

from typing import Final

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS contract (id INTEGER PRIMARY KEY, document BLOB NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS cases (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, start REAL NOT NULL, kept REAL NOT NULL,
    why TEXT NOT NULL, contract INTEGER NOT NULL REFERENCES contract, samples BLOB NOT NULL, device BLOB NOT NULL,
    cloud BLOB, label TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS by_key ON cases (key);
CREATE INDEX IF NOT EXISTS by_label ON cases (label, place);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
"""
ADDED: Final = {
    "rival": "BLOB", "draw": "INTEGER", "stored_s": "REAL NOT NULL DEFAULT 0.0",
    "origin": "TEXT NOT NULL DEFAULT ''", "digest": "BLOB",
}  # fmt: skip
"""Columns that files of earlier versions lack; ages begin when they are added."""
INDEXES: Final = """
CREATE INDEX IF NOT EXISTS by_age ON cases (stored_s);
CREATE INDEX IF NOT EXISTS by_rival ON cases (place) WHERE rival IS NOT NULL;
"""
TURN: Final = """row_number() OVER (
    PARTITION BY json_extract(CAST(rival AS TEXT), '$.bundle', '$.against', '$.attempt'), key ORDER BY draw
) AS turn"""
ONE: Final = """
SELECT cases.id, key, start, kept, why, document, samples, device, cloud, label, rival, origin
FROM cases JOIN contract ON contract.id = contract WHERE cases.id = ?
"""
SUMMARIES: Final = f"""
SELECT id, key, start, why, label FROM (
    SELECT id, key, start, why, label, rival, draw, place, {TURN}, row_number() OVER (
        PARTITION BY key, json_extract(CAST(device AS TEXT), '$.label') ORDER BY label = '', draw, place
    ) AS other FROM cases
)
WHERE (?1 = 'all' OR (label = '') = (?1 = 'open')) AND (?2 = '' OR key = ?2)
ORDER BY ?1 = 'open' AND rival IS NOT NULL DESC,
    CASE WHEN ?1 = 'open' THEN iif(rival IS NULL, other, turn) END, iif(?1 = 'open' AND rival IS NOT NULL, draw, place)
LIMIT ?3
"""  # noqa: S608 - a constant
"""Those that two models differ on come first among the open ones, in their order: an update waits for their labels.
Cases with a label are turns that are over, so what has few labels comes next."""
SAMPLE: Final = f"""
FROM (SELECT place, draw, key, rival, label, origin, {TURN} FROM cases
WHERE rival IS NOT NULL AND substr(rival, 1, length(?1)) = ?1) ORDER BY turn, draw
"""  # noqa: S608
LEAVE_OTHERS: Final = """
UPDATE cases SET rival = NULL WHERE rival IS NOT NULL AND label = '' AND substr(rival, 1, length(?1)) != ?1
"""
NOT_OF_THE_SAMPLE: Final = "DELETE FROM cases WHERE why = 'differ' AND rival IS NULL AND label = ''"
STRIP: Final = """
UPDATE cases SET digest = digest(samples), samples = x'', device = '{}', cloud = NULL
WHERE place IN
    (SELECT place FROM cases WHERE stored_s < ? AND label > '' AND length(samples) > 0 ORDER BY place LIMIT ?)
"""
