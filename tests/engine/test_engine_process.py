"""`python -m engine --model scripted` as a process, and an app that it dials: its start, its work, its several ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.state import fold
from engine.cost_model import CostModel
from tests.engine.app_server import TOKEN, WAIT, AppServer, Connection

ROOT = Path(__file__).parents[2]
FAILING = """
import sys, engine.__main__, engine.scripted
class Failing(engine.scripted.ScriptedRunner):
    def forward(self, batch):
        if any(row.num_output_before == 2 for row in batch.rows):
            raise ZeroDivisionError("the model broke")
        return batch
engine.scripted.ScriptedRunner = Failing
sys.exit(engine.__main__.main())
"""

UNFORESEEN = """
import sys, engine.__main__
def build(*_):
    raise ZeroDivisionError("nobody\\nforesaw it")
engine.__main__.build = build
sys.exit(engine.__main__.main())
"""


class Process:
    """One engine process and its (first) connection."""

    def __init__(self, app: AppServer, *flags: str, program: tuple[str, ...] = ("-m", "engine")) -> None:
        self.app = app
        self.popen = subprocess.Popen(
            [sys.executable, *program, "--app", app.url, "--model", "scripted", "--scripted-step-ms=1", *flags],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"STEPSCOPE_ENGINE_TOKEN": TOKEN},
        )
        self.connection: Connection = app.accept()

    def submit(self, request: str, **fields: Any) -> None:
        body = {"prompt": "Hello", "sampling": {"max_tokens": 5}} | fields
        self.connection.send(cmd="submit", cmd_id=f"submit {request}", request=request, **body)

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and wait for its reply."""
        name = f"c{len(self.connection.received)}"
        self.connection.send(cmd_id=name, **command)
        return self.connection.wait_for("reply", cmd_id=name)

    def wait(self) -> int:
        return self.popen.wait(WAIT)

    def errors(self) -> str:
        assert self.popen.stderr is not None
        return self.popen.stderr.read()

    def close_stdin(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.close()

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait(WAIT)
        for pipe in (self.popen.stdin, self.popen.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts engine processes; none outlives its test."""
    started: list[Process] = []
    with AppServer() as app:

        def start_one(*flags: str, **options: Any) -> Process:
            started.append(Process(app, *flags, **options))
            return started[-1]

        yield start_one
        for process in started:
            process.end()


def text_of(received: list[dict[str, Any]], request: str) -> str:
    text = ""
    for message in received:
        if message["kind"] == "text" and message["request"] == request:
            assert message["offset"] == len(text)
            text += message["text"]
    return text


def test_a_whole_life(start):
    """Hello, key, a request streamed, an abort, the gate, a lost connection, and the end of stdin."""
    process = start("--max-num-seqs=3", "--name=left")
    first = process.connection
    hello = first.wait_for("hello")
    assert (hello["engine"], hello["config"]["max_num_seqs"], hello["simulated"]) == ("left", 3, True)
    assert first.wait(lambda received: len(received) > 1 and received[1])["kind"] == "key"

    process.submit("r1", messages=[{"role": "user", "content": "Hello"}], sampling={"max_tokens": 16})
    assert first.wait_for("finished", request="r1")["reason"] == "length"
    assert text_of(first.received, "r1") == "You said: Hello."

    assert process.ask(cmd="gate", action="pause")["ok"]
    process.submit("r2")
    assert process.ask(cmd="abort", request="r2")["ok"]
    assert process.ask(cmd="key")["ok"]

    state = None
    for message in first.received:
        if message["kind"] == "key" and state is not None:
            assert state == message["state"]
        elif message["kind"] != "text":
            state = fold(state, message)
    numbers = [m["seq"] for m in first.received if m["kind"] not in ("key", "text")]
    assert numbers == list(range(1, len(numbers) + 1))

    first.drop()
    again = process.app.accept()
    assert again.wait_for("hello")["epoch"] == hello["epoch"]
    assert again.wait_for("key")["state"]["gate"]["state"] == "paused"

    process.close_stdin()
    assert again.wait_for("bye")["origin"] == "engine"
    assert process.wait() == 0
    assert process.errors() == ""


def test_the_end_of_stdin_ends_the_process_and_its_live_requests_first(start):
    """A74: it cannot outlive the program that started it, and no stream is left hanging."""
    process = start("--scripted-step-ms=50")
    process.submit("r1", sampling={"max_tokens": 200})
    process.connection.wait_for("first_token")
    process.close_stdin()
    process.connection.wait_for("bye")
    assert process.wait() == 0
    finished = process.connection.wait_for("finished", request="r1")
    assert (finished["reason"], finished["detail"]) == ("error", "shutdown")
    names = process.connection.names()
    assert names.index("finished") < names.index("bye") == len(names) - 1


@pytest.mark.parametrize("end", ["terminate", "interrupt", "command"])
def test_a_paused_engine_can_be_told_to_stop(start, end):
    """A74: shutdown works while paused."""
    process = start("--start-paused")
    process.submit("r1")
    process.connection.wait_for("arrived")
    if end == "command":
        process.connection.send(cmd="shutdown", cmd_id="c")
    else:
        process.popen.send_signal(signal.SIGTERM if end == "terminate" else signal.SIGINT)
    process.connection.wait_for("bye")
    assert process.wait() == 0
    assert process.connection.wait_for("finished", request="r1")["reason"] == "error"


def test_a_step_that_raises_ends_the_engine_and_says_why(start):
    """Every live request is told first; then bye, and exit 1."""
    process = start("--max-num-seqs=1", "--start-paused", program=("-c", FAILING))
    for name in ("r1", "r2"):
        process.submit(name)
        process.connection.wait_for("arrived", request=name)
    process.connection.send(cmd="gate", action="run")
    bye = process.connection.wait_for("bye")
    assert "the model broke" in bye["reason"]
    assert process.wait() == 1
    ended = [m for m in process.connection.received if m.get("event") == "finished"]
    assert sorted((m["request"], m["reason"], m["detail"]) for m in ended) == [
        ("r1", "error", "engine_error"),
        ("r2", "error", "engine_error"),
    ]
    assert process.connection.names()[-1] == "bye"
    assert "Traceback" in process.errors()


def test_bad_requests_fail_alone_while_another_streams(start):
    """K3: and no block is lost."""
    process = start("--num-blocks=8", "--max-model-len=1024")
    process.submit("good", sampling={"max_tokens": 60})
    bad: list[dict[str, Any]] = [
        {"prompt": ""},
        {"prompt": "a\ud800"},
        {"prompt": "a\0"},
        {"prompt": "x" * 200},
        {"prompt": "x" * 1024},
        {"prompt_token_ids": [10**400]},
        {"messages": [{"role": "wizard", "content": "x"}]},
        {"sampling": {"temperature": float("nan")}},
        {"sampling": {"temperature": 10**400}},
        {"sampling": {"max_tokens": 0}},
        {"label": "\ud800"},
    ]
    for i, fields in enumerate(bad):
        process.submit(f"bad{i}", **fields)
    process.submit("last")
    for i in range(len(bad)):
        assert process.connection.wait_for("rejected", request=f"bad{i}")["status"] == 400
        assert not process.connection.wait_for("reply", cmd_id=f"submit bad{i}")["ok"]
    for name in ("good", "last"):
        assert process.connection.wait_for("finished", request=name)["reason"] == "length"
    process.ask(cmd="key")
    key = next(m for m in reversed(process.connection.received) if m["kind"] == "key")
    assert key["state"]["blocks"]["counts"]["referenced"] == 0
    assert key["state"]["totals"]["rejected"] == len(bad)


def run_engine(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "engine", "--app", "ws://127.0.0.1:9/ws/engine", "--model", "scripted", *flags]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, stdin=subprocess.PIPE, timeout=WAIT)


def test_flags_that_cannot_work_are_one_sentence_and_exit_2():
    ended = run_engine("--max-num-seqs=0")
    assert ended.returncode == 2
    assert ended.stderr == "--max-num-seqs is 0; it must be at least 1.\n"


def test_a_start_that_fails_is_told_to_the_app_too(start):
    process = start("--no-enable-chunked-prefill", "--max-num-batched-tokens=64")
    assert "--max-model-len" in process.connection.wait_for("bye")["reason"]
    assert process.wait() == 2
    assert process.errors().count("\n") == 1


def test_the_scripted_engine_imports_no_torch():
    program = (
        "import sys, engine.__main__ as m;"
        "m.build(m.EngineConfig(model='scripted'), print);"
        "print('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=WAIT)
    assert ended.stdout == "False\n"


def test_a_simulating_engine_says_so_and_keeps_the_pace_of_its_cost_model(start, tmp_path):
    pace = tmp_path / "cost.json"
    pace.write_text(CostModel(step_us=4_000, decode_row_us=1_000).to_json())
    process = start("--model=nowhere", "--simulate", f"--cost-model={pace}")
    assert process.connection.wait_for("hello")["simulated"] is True
    process.submit("r1")
    process.connection.wait_for("finished", request="r1")
    steps = [message for message in process.connection.received if message["kind"] == "step"]
    assert [step["phases_us"]["forward"] >= 4_000 + 1_000 * step["num_decode_tokens"] for step in steps] == [True] * 5


def test_a_cost_model_that_is_none_ends_the_start_with_a_sentence(start):
    process = start("--simulate", "--cost-model=nowhere.json")
    assert process.wait() == 2
    assert "--cost-model nowhere.json cannot be used" in process.errors()


def test_a_load_that_fails_as_nobody_foresaw_is_one_sentence_on_the_page_and_at_the_end_of_the_terminal(start):
    process = start(program=("-c", UNFORESEEN))
    reason = process.connection.wait_for("bye")["reason"]
    assert reason.startswith("--model scripted could not be loaded (ZeroDivisionError: nobody foresaw it). ")
    assert process.wait() == 2
    assert process.errors().splitlines()[-1] == reason
