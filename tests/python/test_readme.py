"""What the README shows works as it is pasted; only the port is another."""

import json
import re
import subprocess
import sys

import pytest

from conftest import ROOT

PAGES = ["README.md", "README.zh-CN.md"]


def blocks(page, language):
    text = (ROOT / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


@pytest.mark.parametrize("page", PAGES)
def test_curl(server, page):
    commands = [block for block in blocks(page, "sh") if block.startswith("curl")]
    assert commands, f"{page} shows no curl"
    for command in commands:
        command = command.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")
        command = command.replace("localhost:8000", f"127.0.0.1:{server.port}")
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True)
        answer = json.loads(done.stdout)
        assert answer["choices"][0]["message"]["content"].strip(), answer


@pytest.mark.parametrize("page", PAGES)
def test_python(server, page):
    scripts = [block for block in blocks(page, "python") if "openai" in block]
    assert scripts, f"{page} shows no Python"
    for script in scripts:
        script = script.replace(":8000", f":{server.port}")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and done.stdout.strip(), done
