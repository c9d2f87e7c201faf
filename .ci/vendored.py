"""Check that every file in static/vendor/ is the one VENDOR.json records, and that it records every file.

    python .ci/vendored.py [FOLDER]

VENDOR.json: {file name: {"version", "license", "source", "sha256"}}. Prints one line per fault; exits 1 if any.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

FIELDS = {"version", "license", "source", "sha256"}


def faults(folder: Path) -> list[str]:
    """What is wrong, a sentence each."""
    record = json.loads((folder / "VENDOR.json").read_text(encoding="utf-8"))
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} - {"VENDOR.json"}
    found = [f"{name} is not recorded in VENDOR.json." for name in sorted(present - record.keys())]
    for name, entry in sorted(record.items()):
        missing = FIELDS - entry.keys()
        if missing:
            found.append(f"{name}: VENDOR.json lacks {', '.join(sorted(missing))}.")
        elif name not in present:
            found.append(f"{name} is recorded in VENDOR.json but is not there.")
        elif (sha256 := hashlib.sha256((folder / name).read_bytes()).hexdigest()) != entry["sha256"]:
            found.append(f"{name} has sha256 {sha256}; VENDOR.json records {entry['sha256']}.")
    return found


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "static" / "vendor"
    found = faults(folder)
    for fault in found:
        print(fault, file=sys.stderr)
    if not found:
        print("Vendored files are as recorded.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
