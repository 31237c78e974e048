"""Terminal in which what others have written is shown and does nothing: control characters become visible."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from cerebro_db.configs.messages import visible


class Screen(Console):
    """Console of rich whose own codes pass, and those in texts do not."""

    def render_str(self, text: str, **options: Any) -> Any:
        """A string as text; made visible before it is measured."""
        return super().render_str(visible(text), **options)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        """The segments of a renderable; of texts those that rich makes of them, made visible."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
