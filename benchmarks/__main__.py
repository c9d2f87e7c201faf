"""`python -m benchmarks [NAME …]`: run one benchmark with its flags, or all of them; exit 1 if a promise is missed."""

import sys

from benchmarks import browser, kv_error, lessons, throughput

BENCHMARKS = {
    "throughput": throughput.main,
    "lessons": lessons.main,
    "kv-error": kv_error.main,
    "browser": browser.main,
}


def main(argv: list[str]) -> int:
    if not argv:
        return max(run([]) for run in BENCHMARKS.values())
    if argv[0] not in BENCHMARKS:
        print(f"python -m benchmarks: {argv[0]} is none of {', '.join(BENCHMARKS)}.", file=sys.stderr)
        return 2
    return BENCHMARKS[argv[0]](argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
