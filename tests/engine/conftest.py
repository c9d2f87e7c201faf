"""Tests of the engine run torch beside whatever else the machine does; see engine/threads.py."""

from engine.threads import wait_politely

wait_politely()
