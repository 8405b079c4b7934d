"""What the command line does to the terminal: notes, a progress bar, and TensorFlow's start-up noise kept off it.

Only the command line calls this; the library leaves logging, warnings and the environment of its host alone.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable

from lbzoo.errors import MissingPartError

# What the C++ side of TensorFlow 2.15 says on a healthy machine while it is imported, and when it first compiles a
# function, some of it at level ERROR
_NOISE = (
    r"Unable to register cu\w+ factory|oneDNN custom operations are on|Could not find cuda drivers|"
    r"TF-TRT Warning|This TensorFlow binary is optimized|^To enable the following instructions|"
    r"All log messages before absl::InitializeLog|Compiled cluster using XLA|SetPriority unimplemented"
)
_FILTER = """
import os, re, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
noise = re.compile(sys.argv[1].encode())
for line in sys.stdin.buffer:
    if not noise.search(line):
        os.write(1, line)
"""
_quiet = False  # whether import_tensorflow held noise back


def debugging() -> bool:
    """Whether LBZOO_DEBUG asks for tracebacks and for everything that TensorFlow says."""
    return os.environ.get("LBZOO_DEBUG", "") not in ("", "0")


def note(message: str) -> None:
    """One line on standard error that is not an error."""
    print(f"lbzoo: note: {one_line(message)}", file=sys.stderr, flush=True)


def one_line(message: Any) -> str:
    """A message without line breaks."""
    return " ".join(str(message).split())


def abandon_stdout() -> None:
    """What is still buffered has no reader; without this the interpreter would complain while it shuts down."""
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)
    except (OSError, ValueError):
        pass


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines of columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


@contextlib.contextmanager
def warnings_as_notes() -> Iterator[None]:
    """UserWarning and what lbzoo logs as notes, instead of a line of source code or a bare message."""
    log, notes = logging.getLogger("lbzoo"), _Notes(logging.WARNING)
    log.addHandler(notes)
    with contextlib.ExitStack() as stack:
        stack.callback(log.removeHandler, notes)
        stack.enter_context(warnings.catch_warnings())
        shown = warnings.showwarning

        def show(message: Any, category: Any, *place: Any) -> None:
            if issubclass(category, UserWarning) and not debugging():
                note(str(message))
            else:
                shown(message, category, *place)

        warnings.showwarning = show
        yield


@contextlib.contextmanager
def leaving_on_sigterm() -> Iterator[None]:
    """SIGTERM leaves by SystemExit, exit status 143, so that what is written aside is cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    asked = []

    def leave(number: int, _: Any) -> None:
        asked.append(number)
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    except BaseException:
        if asked:  # in the middle of an import it comes out as another error
            raise SystemExit(128 + asked[0]) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def progress(items: Iterable[Any], unit: str) -> Iterator[Any]:
    """The items, with a progress bar on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        return iter(items)
    from tqdm import tqdm

    return iter(tqdm(items, unit=f" {unit}", file=sys.stderr, leave=False, mininterval=0.5, smoothing=0.05))


def import_tensorflow() -> None:
    """Import TensorFlow with its start-up noise left out; anything else that it says is passed on.

    Nothing is held back where TF_CPP_MIN_LOG_LEVEL is set already, or with LBZOO_DEBUG=1.
    """
    if "tensorflow" not in sys.modules:
        _require_old_numpy()
    if "tensorflow" in sys.modules or debugging() or "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        return
    global _quiet
    _quiet = True
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # errors stay
    warnings.filterwarnings("ignore", module="tensorflow_addons")  # its notice that it has reached its end of life
    with _noise_filtered():
        import tensorflow  # noqa: F401
    for name in ("tensorflow", "absl"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _require_old_numpy() -> None:
    """One line in place of the pages that TensorFlow 2.15 prints when another install has brought NumPy 2."""
    try:
        version = importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        return
    if int(version.split(".")[0]) >= 2:
        raise MissingPartError(
            f"TensorFlow 2.15 needs numpy below 2. Received: numpy {version}. Run: pip install 'numpy<2' 'pandas<3'"
        )


def quiet_first_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`; its first call, in which TensorFlow compiles, is as quiet as `import_tensorflow` was."""
    waiting = [_noise_filtered] if _quiet else []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with waiting.pop()() if waiting else contextlib.nullcontext():
            return function(*args, **kwargs)

    return call


@contextlib.contextmanager
def _noise_filtered() -> Iterator[None]:
    """Standard error through another process that drops the known lines.

    A process, not a thread or a file, so that the last words of a process that TensorFlow aborts are still printed.
    """
    if os.name != "posix" or not sys.executable:
        yield
        return
    try:
        sys.stderr.flush()
        kept = os.dup(2)
    except (OSError, ValueError, AttributeError):  # standard error is closed
        yield
        return
    # not a fork: TensorFlow's threads may be running
    command = [sys.executable, "-I", "-S", "-c", _FILTER, _NOISE]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=kept, stderr=subprocess.DEVNULL)
    os.dup2(child.stdin.fileno(), 2)
    child.stdin.close()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        child.wait()
