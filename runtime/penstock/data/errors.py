"""What the data plane refuses or loses, and why; every message says what to do about it."""

from __future__ import annotations


class DataError(Exception):
    """The data plane cannot go on with this connection, batch or pipeline."""


class FrameError(DataError):
    """A peer sent what is no frame, stalled within one, or went away: the connection is over."""


class ConnectionLostError(FrameError):
    """A peer stalled or went away: nothing that it sent was wrong."""


class HandshakeError(DataError):
    """The two ends do not belong together: another token, another version, another protocol."""


class TooLargeError(DataError):
    """A batch or pipeline beyond what one frame may carry; nothing of it was sent."""


class NotPortableError(DataError):
    """Something that cannot be prepared elsewhere: it stays in the training process."""


class NotCutError(DataError):
    """A sample cannot be made in two places; says why."""


class PipelineTooLargeError(NotPortableError):
    """A pipeline that holds more than is sent: it was not even packed."""


class SignatureError(DataError):
    """A pipeline that was not signed with this job's token: it is not opened."""


class BadSampleError(DataError, RuntimeError):
    """A step that workers died on again and again; names its samples."""


class SavedError(DataError):
    """Batches that cannot be saved, or are not there as they were saved; names the file."""
