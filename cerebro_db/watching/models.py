"""Registered models as they are looked at: a version, where it comes from, and what its report has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from cerebro_db.configs.names import model_reference
from cerebro_db.core.model_reports import ModelReport
from cerebro_db.errors import UndefinedModel
from cerebro_db.watching import texts
from cerebro_db.watching.reading import Source
from cerebro_db.wire import decode_stored, encode

# Parameters: the owner or NULL, the name, twice the version or NULL, twice the alias or NULL.
_VERSION = """
SELECT v.owner::text, v.name, v.version, v.aliases, v.description, v.tags, v.lineage, v.registered, v.run_id, v.mst_key,
       v.report::text
  FROM cerebro.registered_versions v
 WHERE v.owner::text = COALESCE(%s, CAST(current_user AS text)) AND v.name = %s
   AND (v.version = %s OR CAST(%s AS integer) IS NULL)
   AND (%s = ANY (v.aliases) OR CAST(%s AS text) IS NULL)
 ORDER BY v.version DESC LIMIT 1
"""
_CHANGED = "somebody has changed it: register the model anew"
_MOST_COLUMNS = 60


class ModelFacts(NamedTuple):
    """A row of ``cerebro.registered_versions``.

    Attributes:
        run_id, mst_key: of what trained it.
        report: JSON; None where nothing was kept.
    """

    owner: str
    name: str
    version: int
    aliases: Sequence[str]
    description: str | None
    tags: Mapping[str, Any]
    lineage: Mapping[str, Any]
    registered: datetime
    run_id: int
    mst_key: int
    report: str | None

    @property
    def title(self) -> str:
        """Title for people."""
        return f"model {self.name}, version {self.version}"


@dataclass(frozen=True)
class ModelSection:
    """Section of a report about a version."""

    facts: ModelFacts
    contents: ModelReport

    @property
    def run_ids(self) -> list[int]:
        """The runs that trained it and what it was compared with, the one that trained it first."""
        return list(dict.fromkeys([self.facts.run_id, *self.contents.runs]))

    @property
    def drawn(self) -> dict[str, Any]:
        """Contents of the drawings as plain values."""
        found = self.contents
        importances = found.importances[:_MOST_COLUMNS]
        return {
            "curves": found.curves,
            "columns": {
                "names": [one.column for one in importances],
                "values": [one.value for one in importances],
                "deviations": [one.deviation for one in importances],
                "measure": found.measure,
            },
            "reliability": [[one.confidence, one.accuracy, one.rows] for one in found.reliability],
        }

    @property
    def measures(self) -> list[str]:
        """Names of the scores."""
        return list(dict.fromkeys(name for one in self.contents.scores.values() for name in one))


def model_section(source: Source, text: str) -> ModelSection:
    """The section of a report about a version.

    Args:
        source: whose role may see it.
        text: such as ``visits@champion``, ``visits:3`` or ``alice.visits``.

    Raises:
        InvalidArgument: that is no name of a model.
        UndefinedModel: the caller has no such version.
    """
    reference = model_reference(text, "model")
    version, alias = reference.version, reference.alias
    given = (reference.owner, reference.name, version, version, alias, alias)
    rows = source.run(_VERSION, given)
    if not rows:
        raise UndefinedModel(
            f"model: got {reference}; you have no such version, nor were granted one",
            hint="cerebro.registered_versions shows your models and those that you may use",
        )
    facts = ModelFacts(*rows[0])
    contents = ModelReport()
    if facts.report is not None:
        contents = decode_stored(ModelReport, facts.report, "report", _CHANGED)
    return ModelSection(facts, contents)


def listed(values: Mapping[str, Any]) -> str:
    """Arguments for people."""
    shown = {
        name: value if isinstance(value, str) else encode(value) for name, value in values.items()
    }
    return texts.parameters(shown)
