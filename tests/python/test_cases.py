"""The black-box cases of tests/cases, against a server with a key.

Cases that need what is not there yet are skipped by name in tests/cases_skipped.txt, each with its reason.
"""

import os
import subprocess
import sys

from conftest import MODEL_NAME, ROOT

CASES = ROOT / "tests/cases"
SKIPPED = ROOT / "tests/cases_skipped.txt"


def skipped():
    """Ids and reasons."""
    lines = SKIPPED.read_text().splitlines() if SKIPPED.exists() else []
    pairs = [line.split(":", 1) for line in lines if line.strip() and not line.startswith("#")]
    return {case.strip(): reason.strip() for case, reason in pairs}


def test_every_skip_names_a_case_and_a_reason():
    known = {path.stem for path in (CASES / "cases").glob("*.json")}
    for case, reason in skipped().items():
        assert case in known, f"{case} is no case"
        assert reason, f"{case} is skipped without a reason"


def test_cases(start):
    server = start("--max-num-queued-reqs", "512", key="case-key")
    environment = os.environ | {
        "BASE_URL": server.url,
        "API_KEY": server.key,
        "MODEL": MODEL_NAME,
        "SKIP": ",".join(skipped()),
        "TIMEOUT": "120",
    }
    done = subprocess.run(
        [sys.executable, CASES / "run_cases.py"], env=environment, capture_output=True, text=True, timeout=1500
    )
    print(done.stdout, done.stderr)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert done.returncode == 0, "\n".join(failed) or done.stderr
    passed = sum(line.startswith("PASS") for line in done.stdout.splitlines())
    assert passed >= 20, f"only {passed} cases ran"
    assert "panicked at" not in server.log()
