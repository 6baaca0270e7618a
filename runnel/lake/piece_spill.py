"""Hold pieces of rows by bucket until all of them are there: in memory up to a size, then in files of a folder."""

from collections.abc import Iterator
from pathlib import Path

MEMORY_BYTES = 64 * 1024 * 1024
_LENGTH_BYTES = 8


class PieceSpill:
    """The pieces of each bucket, in the order in which they were added.

    The caller removes the folder. It is used only if the pieces need more than `memory_bytes`.
    """

    def __init__(self, folder: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._buffered_pieces: dict[int, list[bytes]] = {}
        self._buffered_bytes = 0

    def add(self, bucket: int, piece: bytes) -> None:
        """Add a piece to a bucket."""
        self._buffered_pieces.setdefault(bucket, []).append(piece)
        self._buffered_bytes += len(piece)
        if self._buffered_bytes > self._memory_bytes:
            self._flush()

    def take(self, bucket: int) -> Iterator[bytes]:
        """Yield the pieces of a bucket and forget them."""
        path = self._get_path(bucket)
        if path.exists():
            with path.open("rb") as file:
                while length := file.read(_LENGTH_BYTES):
                    yield file.read(int.from_bytes(length, "big"))
            path.unlink()
        yield from self._buffered_pieces.pop(bucket, [])

    def _flush(self) -> None:
        for bucket, pieces in self._buffered_pieces.items():
            with self._get_path(bucket).open("ab") as file:
                for piece in pieces:
                    file.write(len(piece).to_bytes(_LENGTH_BYTES, "big"))
                    file.write(piece)
        self._buffered_pieces, self._buffered_bytes = {}, 0

    def _get_path(self, bucket: int) -> Path:
        return self._folder / f"bucket-{bucket}"
