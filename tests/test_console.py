"""What the command line does to the terminal."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import signal
import subprocess
import sys
import time
import warnings

import pytest

from lbzoo import console
from lbzoo.console import progress
from lbzoo.errors import MissingPartError


def test_noise_is_dropped_and_last_words_are_kept():
    code = (
        "import os\n"
        "from lbzoo.console import _noise_filtered\n"
        "with _noise_filtered():\n"
        "    os.write(2, b'E cuda_dnn.cc:1] Unable to register cuDNN factory: again\\nreal one\\n')\n"
        "os.write(2, b'between\\n')\n"
        "with _noise_filtered():\n"
        "    os.write(2, b'F the processor lacks AVX')\n"
        "    os.abort()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "real one\nbetween\nF the processor lacks AVX"


def test_the_first_call_is_quiet_and_the_others_are_as_they_are():
    noise = "I0000 device_compiler.h:186] Compiled cluster using XLA!"
    code = (
        "import os\n"
        "from lbzoo import console\n"
        "loud = console.quiet_first_call(lambda text: os.write(2, text))\n"
        "console._quiet = True\n"
        "quiet = console.quiet_first_call(lambda text: os.write(2, text))\n"
        f"for say in (loud, quiet, quiet):\n    say(b'{noise}\\n'), say(b'step\\n')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines() == [noise, "step", "step", noise, "step"]


def test_progress_is_for_terminals_only(monkeypatch, capsys):
    assert list(progress([1, 2], "texts")) == [1, 2] and capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert list(progress([1, 2], "texts")) == [1, 2] and "texts" in capsys.readouterr().err


def test_warnings_become_notes(run, monkeypatch):
    monkeypatch.setattr("lbzoo.zoo.run_list", lambda args: warnings.warn("two\nlines", UserWarning, stacklevel=2))
    assert run("list") == (0, "", "lbzoo: note: two lines\n")


def test_what_the_library_logs_becomes_a_note(run, monkeypatch):
    log = logging.getLogger("lbzoo")
    before = list(log.handlers)
    monkeypatch.setattr("lbzoo.zoo.run_list", lambda args: log.warning("%s of the Hub", "wrong bytes"))
    assert run("list") == (0, "", "lbzoo: note: wrong bytes of the Hub\n")
    assert log.handlers == before


def test_numpy_2_is_told_in_one_line(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.4.6")
    with pytest.raises(MissingPartError, match="numpy 2.4.6. Run: pip install 'numpy<2'"):
        console.import_tensorflow()


def test_sigterm_is_the_exit_status_whatever_it_is_turned_into():
    with pytest.raises(SystemExit) as left, console.leaving_on_sigterm():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except SystemExit as error:
            raise ImportError("half initialised") from error
    assert left.value.code == 143
    with pytest.raises(ImportError), console.leaving_on_sigterm():
        raise ImportError("without a signal it stays what it is")
