"""`stepscope`: the command line. `serve` runs the app and its engine; `doctor` says what was found."""

from __future__ import annotations

import argparse
import logging
import socket
import sys

from app.doctor import examine
from app.engines import Supervisor
from app.hub import Hub
from app.main import create_app
from app.server import PortTaken, Server, bind, serve_forever
from app.settings import DEFAULT_MAX_VIEWERS, DEFAULT_PORT, LOOPBACK, Settings, ShareText
from app.terminal import Terminal, complain, say
from engine.config import EngineConfig
from engine.errors import StepscopeError, brief, shown
from engine.flags import add_config_flags, config_from_args
from engine.model_source import check_models

USAGE_EXIT = 2


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    try:
        return serve(args) if args.command == "serve" else doctor(args)
    except (StepscopeError, PortTaken) as error:
        complain(str(error))
        return USAGE_EXIT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stepscope", description="Watch live what happens inside an LLM inference engine, step by step."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    serving = commands.add_parser("serve", help="start the app and a local engine", allow_abbrev=False)
    server = serving.add_argument_group("server")
    server.add_argument("--host", default="127.0.0.1", help="loopback only, for now (default: %(default)s)")
    server.add_argument("--port", type=_port, default=DEFAULT_PORT, metavar="N", help="default: %(default)s; 0: any")
    server.add_argument(
        "--share-text",
        choices=[choice.value for choice in ShareText],
        default=ShareText.OWN.value,
        help="who sees prompts and answers: those who sent them, or everybody (default: %(default)s)",
    )
    server.add_argument(
        "--allowed-host", action="append", default=[], metavar="NAME", help="another name this server goes by"
    )
    server.add_argument("--max-viewers", type=_positive, default=DEFAULT_MAX_VIEWERS, metavar="N")
    add_config_flags(serving)
    examining = commands.add_parser("doctor", help="say what was found: device, model, browser, port")
    examining.add_argument("--port", type=_port, default=DEFAULT_PORT, metavar="N")
    add_config_flags(examining)
    return parser


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{shown(port)} is not a port; it must be from 0 to 65535")
    return port


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{shown(number)} is too small; it must be at least 1")
    return number


def serve(args: argparse.Namespace) -> int:
    """Check everything that can be checked, then serve until a signal says stop."""
    if args.host not in LOOPBACK:
        complain(f"--host {brief(args.host)} is refused: Stepscope serves this machine only (127.0.0.1) for now.")
        return USAGE_EXIT
    config = config_from_args(args)
    address = "127.0.0.1" if args.host == "localhost" else args.host
    sock = bind(address, args.port)
    try:
        check_models(config)
    except BaseException:
        sock.close()
        raise
    port: int = sock.getsockname()[1]
    settings = Settings(
        share_text=ShareText(args.share_text),
        allowed_hosts=LOOPBACK | {name.lower() for name in args.allowed_host},
        max_viewers=args.max_viewers,
    )
    _run(settings, config, sock, f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
    return 0


def _run(settings: Settings, config: EngineConfig, sock: socket.socket, netloc: str) -> None:
    logging.basicConfig(format="%(name)s: %(message)s", level=logging.WARNING, stream=sys.stderr)
    hub = Hub(settings)
    Terminal(hub)
    supervisor = Supervisor(hub, config, app_url=f"ws://{netloc}/ws/engine")
    app = create_app(hub, supervisor)
    server = Server(app, hub, supervisor, lambda: say(f"Stepscope is at http://{netloc}"))
    try:
        serve_forever(server, sock)
    finally:
        supervisor.kill()


def doctor(args: argparse.Namespace) -> int:
    """Print what was found; the exit status says whether `serve` can be expected to work."""
    return 0 if examine(config_from_args(args), args.port, say) else 1
