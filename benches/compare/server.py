"""A server process: how it is started, reached, measured and ended.

Every server gets a process group of its own, so that ending it ends its children too.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

# Seconds between two looks at a server that starts.
POLL_SECONDS = 0.005
# Seconds that a server gets to end by itself.
STOP_SECONDS_MAX = 30
# Lines of a log that are shown when something went wrong.
LOG_LINES = 15


class ServerFailed(Exception):
    """The server did not start, or not in time; the message holds the end of its log."""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A running server, and the address under which it answers."""

    def __init__(self, name, line, port, ready, environment=None, start_seconds_max=120):
        self.name, self.ready, self.start_seconds_max = name, ready, start_seconds_max
        self.url = f"http://127.0.0.1:{port}"
        self.log = tempfile.NamedTemporaryFile("w+", prefix=f"bench-{name}-", suffix=".log")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [str(part) for part in line],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env=os.environ | (environment or {}),
            start_new_session=True,
        )

    def wait(self):
        """Returns when the server says that it is ready; ends it and raises when it does not."""
        problem = f"is not ready after {self.start_seconds_max} s"
        while time.monotonic() - self.started < self.start_seconds_max:
            if self.process.poll() is not None:
                problem = f"ended at its start with code {self.process.returncode}"
                break
            try:
                if urllib.request.urlopen(self.url + self.ready, timeout=2).status == 200:
                    return
            except OSError:
                time.sleep(POLL_SECONDS)
        self.stop()
        raise ServerFailed(f"{self.name} {problem}: {self.log_end()}")

    def log_end(self):
        text = pathlib.Path(self.log.name).read_text(errors="replace").strip()
        return " | ".join(text.splitlines()[-LOG_LINES:])

    def get(self, path):
        return urllib.request.urlopen(self.url + path, timeout=30).read().decode()

    def seconds_to_first_token(self, prompt="The quick brown fox jumps"):
        """From starting the process to the first streamed token, whose text may be empty with random weights."""
        model = json.loads(self.get("/v1/models"))["data"][0]["id"]
        body = {"model": model, "prompt": prompt, "max_tokens": 2, "temperature": 0, "stream": True}
        body["ignore_eos"] = True
        request = urllib.request.Request(
            self.url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as answer:
            for line in answer:
                choices = line.startswith(b"data: {") and json.loads(line[6:]).get("choices")
                if choices and (choices[0].get("text") or not choices[0].get("finish_reason")):
                    return time.monotonic() - self.started
        raise ServerFailed(f"{self.name} streamed no token: {self.log_end()}")

    def tree(self):
        """Process ids of the server and all that it started."""
        children = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                # The name in parentheses may hold blanks; what follows it does not.
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(folder.name))
        found = [self.process.pid]
        for process in found:
            found += children.get(process, [])
        return found

    def memory_bytes(self, field):
        """Sum over the process tree: VmRSS for what is resident now, VmHWM for the peak of each process."""
        total = 0
        for process in self.tree():
            try:
                status = pathlib.Path(f"/proc/{process}/status").read_text()
            except OSError:
                continue
            lines = (line for line in status.splitlines() if line.startswith(field + ":"))
            total += sum(int(line.split()[1]) * 1024 for line in lines)
        return total

    def stop(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                continue
            # The first process has ended; the second signal is for children that have not.
        self.process.wait()
