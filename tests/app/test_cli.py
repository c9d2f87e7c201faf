"""The command line: what is refused, and in how many words."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import main
from app.engines import exit_reason

ROOT = Path(__file__).resolve().parent.parent.parent


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    try:
        code = main(list(argv))
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_without_a_command_it_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert code == 0
    assert "serve" in out
    assert "doctor" in out


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "example.com", "::"])
def test_only_loopback_is_served(capsys: pytest.CaptureFixture[str], host: str) -> None:
    code, out, err = run(capsys, "serve", "--host", host)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert host in err


def test_a_taken_port_is_one_sentence_before_anything_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, out, err = run(capsys, "serve", "--model", "scripted", "--port", str(port))
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert str(port) in err


def test_a_model_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "serve", "--port", "0", "--model", "no/such/folder.gguf")
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1


def test_flags_that_cannot_work_together_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "serve", "--max-num-seqs", "64", "--max-num-batched-tokens", "8")
    assert (code, out) == (2, "")
    assert "--max-num-batched-tokens" in err


@pytest.mark.parametrize("flag", ["--token=x", "--record=f"])
def test_flags_of_later_are_refused(capsys: pytest.CaptureFixture[str], flag: str) -> None:
    code, _, err = run(capsys, "serve", flag)
    assert code == 2
    assert flag.partition("=")[0] in err


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_is_a_port(capsys: pytest.CaptureFixture[str], port: str) -> None:
    assert run(capsys, "serve", "--port", port)[0] == 2


def test_python_m_app_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "app"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "serve" in done.stdout


def test_doctor_says_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        code, out, _ = run(capsys, "doctor", "--model", "scripted", "--port", str(taken))
    assert code == 1
    for word in ("device", "model", "port", "browser"):
        assert word in out
    assert f"Port {taken}" in out
    assert "used: cpu, dtype float32 (torch " in out
    assert "CUDA graphs: off, there are none on a CPU" in out


def test_doctor_finds_what_serve_would_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--simulate", "--cost-model", "/no/such", "--port", "0")
    assert code == 1
    assert "model    --cost-model /no/such cannot be used" in out


def test_doctor_says_that_a_gpu_that_was_asked_for_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--model", "scripted", "--port", "0", "--device", "cuda")
    assert code == 1
    assert "--device is cuda, and torch" in out


@pytest.mark.parametrize(
    ("code", "words", "reason"),
    [
        (-9, "", "Its process was ended by signal 9 (SIGKILL). It may have run out of memory."),
        (-11, "", "Its process was ended by signal 11 (SIGSEGV)."),
        (2, "--model x: there is no such file.", "--model x: there is no such file."),
        (1, "ValueError: secret", "Its process ended with exit code 1; the terminal shows its last words."),
    ],
)
def test_an_exit_is_a_sentence(code: int, words: str, reason: str) -> None:
    assert exit_reason(code, words) == reason
