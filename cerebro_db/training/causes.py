"""Causes of exceptions of Keras and TensorFlow, in one line, without paths."""

from __future__ import annotations

import re
import traceback

from cerebro_db.errors import CerebroError, ConfigurationFailed

_MAX_MESSAGE, _MAX_FRAMES = 500, 12
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Where in the graph, or in which call, it was: after that, nothing tells why.
_PLACES = re.compile(r"\s*(\[\[\{\{node .*|\[Op:\w+.*|Arguments received by .*)", re.DOTALL)
_FRAME = re.compile(r'^[ \t]*File ".*\n(?:[ \t]+\S.*\n)?', re.MULTILINE)
_HEADINGS = re.compile(
    r"Graph execution error:|in user code:|Exception encountered when calling [\w.]+\(\)\."
    r"|Detected at node .* defined at \(most recent call last\):"
    r"|Traceback \(most recent call last\):"
)
# The folders of an absolute path.
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[\w.@+~-]+/)+")


def short(error: BaseException) -> str:
    """Cause of a failure, in one line."""
    if isinstance(error, CerebroError):
        return error.message
    text = _FRAME.sub("", _COLOURS.sub("", str(error)) + "\n")
    text = _HEADINGS.sub("", _PLACES.sub("", text))
    # Keras wraps what went wrong in the whole configuration of each model around it.
    text = " ".join(text.split()).rpartition("Exception encountered: ")[2]
    return _FOLDERS.sub("", text)[:_MAX_MESSAGE] or type(error).__name__


def cause(error: BaseException) -> str:
    """Message of an error, followed by the class of one that is not Cerebro-DB's."""
    text, name = short(error), type(error).__name__
    return text if isinstance(error, CerebroError) or text == name else f"{text} ({name})"


def of_the_model(error: Exception) -> CerebroError:
    """An exception of computing as an error of ours: the frames are its detail."""
    if isinstance(error, CerebroError):
        return error
    failure = ConfigurationFailed(cause(error))
    frames = traceback.extract_tb(error.__traceback__)[-_MAX_FRAMES:]
    names = (f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames)
    failure.detail = "raised in " + ", called by ".join(reversed(list(names)))
    return failure
