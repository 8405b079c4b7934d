"""Every error lbzoo raises on purpose: what happened, what was received, what to do next."""

from __future__ import annotations


class LbzooError(Exception):
    """Base of all errors that lbzoo raises on purpose."""


class UnknownModelError(LbzooError, KeyError):
    """A name that is neither in the manifest nor a checkpoint folder."""

    def __str__(self) -> str:  # KeyError would print the message in quotes
        return str(self.args[0]) if self.args else ""


class ManifestError(LbzooError, ValueError):
    """The manifest does not follow its schema."""


class CheckpointError(LbzooError, ValueError):
    """A checkpoint folder or one of its files is missing, changed or does not fit."""


class ConfigError(LbzooError, ValueError):
    """A configuration value outside what the model or the run can honour."""


class TextError(LbzooError, TypeError, ValueError):
    """Input that is not a text (str or bytes) or not a list of texts."""


class TableError(LbzooError, ValueError):
    """A csv, tsv, jsonl or txt file that cannot be read as it is; names file and row."""


class NotFittedError(LbzooError, ValueError):
    """A classifier without a probe was asked for what only a probe can answer."""


class DownloadError(LbzooError, OSError):
    """A checkpoint could not be fetched; names the file, what was tried and the next step.

    Attributes:
        code: the kind of fault in one word, for programs: offline, unpublished, not-found, denied, rate-limit, server,
            unreachable, timeout, cut, changed, disk-full, cache, certificate.
    """

    def __init__(self, message: str = "", code: str = "unreachable") -> None:
        super().__init__(message)
        self.code = code


class MissingPartError(LbzooError, ImportError):
    """A package that this function needs is not installed (or has no wheel on this platform)."""


class TrainingError(LbzooError, RuntimeError):
    """A training run cannot start or cannot go on."""


class UsageError(LbzooError):
    """Arguments of a command that do not go together."""
