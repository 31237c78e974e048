"""Directories that are opened without following links."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cerebro_db.training.folders import Folder


def root_of(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    return root


def test_what_is_written_is_whole_and_alone(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    with Folder.rooted(root) as opened, opened.below("a", "b") as below:
        assert not below.has("file")
        below.write("file", b"first")
        below.write("file", b"second")
        assert below.has("file")
    assert (root / "a/b/file").read_bytes() == b"second"
    assert [path.name for path in (root / "a/b").iterdir()] == ["file"]


def test_descriptors_are_closed(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    (root / "link").symlink_to("/etc")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with Folder.rooted(root) as opened, opened.below("a", "b"):
            for parts in (("a", ".."), ("a", "../../link"), ("a", ""), ("link",)):
                with pytest.raises(OSError, match=r"is no name|is a symbolic link"):
                    opened.below(*parts)
        with pytest.raises(FileNotFoundError):
            Folder.rooted(root / "nowhere")
    assert len(os.listdir("/proc/self/fd")) == before


def _link(root: Path) -> Path:
    (root / "link").symlink_to(root)
    return root / "link"


def _below_a_link(root: Path) -> Path:
    (root / "real/below").mkdir(parents=True)
    (root / "link").symlink_to(root / "real")
    return root / "link/below"


def _file(root: Path) -> Path:
    (root / "file").touch()
    return root / "file"


def _everyone(root: Path) -> Path:
    root.chmod(0o777)
    return root


def _group(root: Path) -> Path:
    root.chmod(0o770)
    return root


def _everyone_above(root: Path) -> Path:
    (root / "below").mkdir()
    root.chmod(0o777)
    return root / "below"


def _sticky(root: Path) -> Path:
    root.chmod(0o1777)
    return root


def _of_another_user(root: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root gives a directory to somebody else")
    os.chown(root, 12345, 12345)
    return root


def _database(root: Path) -> Path:
    (root / "PG_VERSION").touch()
    return root


def _in_a_database(root: Path) -> Path:
    (root / "base").mkdir()
    return _database(root) / "base"


@pytest.mark.parametrize(
    ("unsafe", "told"),
    [
        (_link, "link: is a symbolic link"),
        (_below_a_link, "link: is a symbolic link"),
        (_file, "file: Not a directory"),
        (_everyone, "root: everyone may write to"),
        (_group, "root: a group may write to"),
        (_everyone_above, "root: everyone may write to"),
        (_sticky, "root: everyone may write to"),
        (_of_another_user, "root: belongs to another user"),
        (_database, "root: holds a database of PostgreSQL"),
        (_in_a_database, "root: holds a database of PostgreSQL"),
    ],
)
def test_what_others_could_change_is_refused(
    tmp_path: Path, unsafe: Callable[[Path], Path], told: str
) -> None:
    with pytest.raises(OSError, match=r"Errno \d+") as refused:
        Folder.rooted(unsafe(root_of(tmp_path)))
    path = Path(refused.value.filename).name
    assert f"{path}: {refused.value.strerror}".startswith(told)


@pytest.mark.parametrize("unsafe", [_link, _file, _everyone, _group, _database])
def test_so_it_is_below_the_root(tmp_path: Path, unsafe: Callable[[Path], Path]) -> None:
    root = root_of(tmp_path)
    inner = root / "inner"
    inner.mkdir()
    parts = unsafe(inner).relative_to(root).parts
    with (
        Folder.rooted(root) as opened,
        pytest.raises(OSError, match=r"link|Not a dir|may write|holds a"),
    ):
        opened.below(*parts)


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    (root / "file").symlink_to(victim)
    with Folder.rooted(root) as opened:
        assert opened.has("file")
        opened.write("file", b"new")
    assert victim.read_bytes() == b"untouched"
    assert (root / "file").read_bytes() == b"new"
    assert not (root / "file").is_symlink()
