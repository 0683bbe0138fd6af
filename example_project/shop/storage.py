from __future__ import annotations

import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from django.core.files.storage import FileSystemStorage


class AtomicFileSystemStorage(FileSystemStorage):
    """Writes a file beside its place and moves it there: readers never see half of it, and a job that runs again
    replaces what it wrote instead of leaving a second file under another name."""

    def get_available_name(self, name: str, max_length: int | None = None) -> str:
        return name

    def _save(self, name: str, content: Any) -> str:
        target = Path(self.path(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".", delete=False) as file:
            try:
                self._write(file, content)
                os.replace(file.name, target)
            except BaseException:
                os.unlink(file.name)
                raise
        return name

    def remove_left_over(self, directory: str, older_than: timedelta) -> int:
        """Remove what killed processes left half written; return how many files that were."""
        oldest = time.time() - older_than.total_seconds()
        found = [
            path for path in Path(self.path(directory)).rglob(".*") if path.is_file() and path.stat().st_mtime < oldest
        ]
        for path in found:
            path.unlink(missing_ok=True)
        return len(found)

    def _write(self, file: IO[bytes], content: Any) -> None:
        for chunk in content.chunks():
            file.write(chunk.encode() if isinstance(chunk, str) else chunk)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), self.file_permissions_mode or 0o644)
