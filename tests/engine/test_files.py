"""Writing files: whole or not at all, whatever fails."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_taguru.engine.errors import RunError
from pytest_taguru.engine.files import AtomicFile, check_writable, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NO_SPACE = OSError(28, "No space left on device")


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def fail(*_: object, **__: object) -> None:
    raise NO_SPACE


@pytest.fixture(params=["nameless", "named"], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test once with files that have no name until they are whole, where there are such."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no nameless files")
    return str(request.param)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_a_new_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "out.json", "out.json", [b"one ", b"two\n"])
    assert (tmp_path / "out.json").read_bytes() == b"one two\n"
    assert names(tmp_path) == ["out.json"]


def test_an_earlier_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_bytes(b"a longer earlier text")
    write_atomically(tmp_path / "out.json", "out.json", [b"new"])
    assert (tmp_path / "out.json").read_bytes() == b"new"
    assert names(tmp_path) == ["out.json"]


@pytest.mark.parametrize("bits", [0o600, 0o640, 0o644, 0o664])
def test_the_mode_of_an_earlier_file_is_kept(bits: int, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_bytes(b"earlier")
    file.chmod(bits)
    write_atomically(file, "out.json", [b"new"])
    assert mode(file) == bits


@pytest.fixture
def umask_027() -> Iterator[None]:
    earlier = os.umask(0o027)
    yield
    os.umask(earlier)


@pytest.mark.usefixtures("umask_027")
def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    write_atomically(tmp_path / "out.json", "out.json", [b"new"])
    assert mode(tmp_path / "out.json") == 0o640
    assert os.umask(0o027) == 0o027, "asking for the umask must not change it"


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "real.json"
    target.write_bytes(b"earlier")
    link = tmp_path / "out.json"
    link.symlink_to(Path("elsewhere") / "real.json")
    write_atomically(link, "out.json", [b"new"])
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert names(tmp_path / "elsewhere") == ["real.json"]


def test_a_dangling_link_is_filled(tmp_path: Path) -> None:
    (tmp_path / "out.json").symlink_to(tmp_path / "real.json")
    write_atomically(tmp_path / "out.json", "out.json", [b"new"])
    assert (tmp_path / "real.json").read_bytes() == b"new"
    assert (tmp_path / "out.json").is_symlink()


@pytest.mark.parametrize("call", ["fsync", "fchmod"])
@pytest.mark.parametrize("earlier", [b"earlier", None])
def test_a_failing_commit_leaves_the_earlier_file(
    call: str, earlier: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out.json"
    if earlier is not None:
        file.write_bytes(earlier)
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(RunError) as caught:
        write_atomically(file, "some/out.json", [b"new"])
    assert caught.value.problems == ("some/out.json: cannot be written: No space left on device",)
    assert names(tmp_path) == ([] if earlier is None else ["out.json"])
    assert earlier is None or file.read_bytes() == earlier


def test_a_failing_rename_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out.json").write_bytes(b"earlier")
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(RunError, match=r"out\.json: cannot be written: No space"):
        write_atomically(tmp_path / "out.json", "out.json", [b"new"])
    assert (tmp_path / "out.json").read_bytes() == b"earlier"
    assert names(tmp_path) == ["out.json"]


def test_a_full_disk_while_writing(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    file = AtomicFile(tmp_path / "out.json", "out.json")
    with full.open("wb", buffering=0) as stream:
        os.dup2(stream.fileno(), file._stream.fileno())
        with pytest.raises(RunError, match=r"^out\.json: cannot be written: No space left"):
            file.write(b"x" * 1_000_000)
    assert names(tmp_path) == []


def test_chunks_that_fail_leave_the_earlier_file(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_bytes(b"earlier")

    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "out.json", "out.json", chunks())
    assert (tmp_path / "out.json").read_bytes() == b"earlier"
    assert names(tmp_path) == ["out.json"]


def test_an_unsynced_directory_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def no_directories(path: str | Path, flags: int, *more: int) -> int:
        if Path(path) == tmp_path:
            raise NO_SPACE
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", no_directories)
    write_atomically(tmp_path / "out.json", "out.json", [b"new"])
    assert (tmp_path / "out.json").read_bytes() == b"new"


def test_the_file_is_synced_before_it_is_renamed_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_sync(handle: int) -> None:
        happened.append("directory" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def note_rename(self: Path, target: Path) -> Path:
        happened.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_rename)
    write_atomically(tmp_path / "out.json", "out.json", [b"new"])
    assert happened == ["file", "rename", "directory"]


def test_discard_leaves_no_trace(kind: str, tmp_path: Path) -> None:
    file = AtomicFile(tmp_path / "out.json", "out.json")
    file.write(b"half")
    assert len(names(tmp_path)) == (1 if kind == "named" else 0)
    file.discard()
    file.discard()
    assert names(tmp_path) == []


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^no/out\.json: cannot be written: No such file"):
        write_atomically(tmp_path / "no" / "out.json", "no/out.json", [b"new"])


@pytest.mark.parametrize(
    ("prepare", "complaint"),
    [
        (lambda file: file.mkdir(), "it is a directory"),
        (lambda file: os.mkfifo(file), "it is not a regular file"),
        (lambda file: file.symlink_to("no/such/out.json"), "directory .* does not exist"),
    ],
    ids=["directory", "fifo", "link-into-nothing"],
)
def test_what_cannot_be_written_is_known_before(
    prepare: Callable[[Path], None], complaint: str, tmp_path: Path
) -> None:
    prepare(tmp_path / "out.json")
    with pytest.raises(RunError, match=rf"^shown: cannot be written: .*{complaint}"):
        check_writable(tmp_path / "out.json", "shown")


def test_a_directory_without_the_right_to_write_is_known_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    message = f"shown: cannot be written: the directory {re.escape(str(tmp_path))} is not writable"
    with pytest.raises(RunError, match=f"^{message}$"):
        check_writable(tmp_path / "out.json", "shown")


def test_a_directory_that_takes_no_files_is_known_before() -> None:
    """Not even from a superuser, whom os.access lets write anywhere."""
    if not Path("/proc/self").is_dir():
        pytest.skip("needs a directory that takes no files, whoever asks")
    with pytest.raises(RunError, match=r"^shown: cannot be written: \S.*"):
        check_writable(Path("/proc/evaluation.json"), "shown")


def test_a_name_that_no_file_can_have_is_known_before(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^shown: cannot be written: File name too long$"):
        check_writable(tmp_path / ("n" * 300), "shown")


def test_asking_changes_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "new.json", "new.json")
    (tmp_path / "old.json").write_bytes(b"earlier")
    check_writable(tmp_path / "old.json", "old.json")
    assert names(tmp_path) == ["old.json"]
    assert (tmp_path / "old.json").read_bytes() == b"earlier"
