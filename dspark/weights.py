"""Where the weights of a checkpoint lie: beside its config, on the hub, or nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from dspark.headers import Finding, TensorInfo, read_int64_tensor
from dspark.ranges import FileUnreadable, LocalReader, Reader
from dspark.source import Source
from dspark.tensors import INDEX_SUFFIX, SUFFIX, Tensors, index_checkpoint


class Weights:
    """The weight files of one checkpoint, read as far as their headers.

    `found` are its tensors; a config that came on standard input has none, which is a finding.
    Constructing one raises `Unreadable` where a hub does not answer.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.found = self._index()

    @property
    def absent(self) -> bool:
        """Whether there is no weight file at all: a target can be planned for without."""
        if [each.rule_name for each in self.found.findings] != ["weights-missing"]:
            return False
        folder = self._source.folder
        if folder is None:
            return not self.found.files
        # Weights in another format are there too, and nothing here could load them.
        return not any(
            path.name.endswith((SUFFIX, INDEX_SUFFIX, ".gguf"))
            or path.name.startswith("pytorch_model")
            for path in folder.iterdir()
        )

    def read_integers(self, info: TensorInfo) -> Sequence[int]:
        """The values of an I64 tensor; raises `Unreadable`."""
        try:
            with self._open(info.file) as reader:
                return read_int64_tensor(reader, info)
        except FileNotFoundError:
            raise FileUnreadable(info.file, "it was removed while it was read") from None

    def _index(self) -> Tensors:
        if self._source.folder is not None:
            return index_checkpoint(self._source.folder)
        if self._source.repo is not None:
            from dspark.remote import index_remote

            return index_remote(*self._source.repo)
        reason = "standard input brings the config alone"
        values = {"reason": reason, "remedy": "give the checkpoint's folder"}
        return Tensors({}, (Finding("weights-missing", {"source": "-", **values}),), (), 0)

    def _open(self, file: str) -> AbstractContextManager[Reader]:
        if self._source.folder is not None:
            return LocalReader(self._source.folder / file, file)
        # INVARIANT: without a folder or a repo no tensor was found, and none is read.
        assert self._source.repo is not None
        from dspark.remote import open_remote

        return open_remote(*self._source.repo, file)
