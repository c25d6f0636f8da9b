"""How one model is measured: who is started when, and in which order everybody is asked.

Workloads a to d: all servers are started first and left idle until their turn, so that a slow moment of the
machine hits all of them; who comes first changes from round to round. Workload e needs the memory for itself:
each server is started, asked and ended before the next one, in two passes of opposite order.
"""

import time

from models import ModelFailed
from peers import start, start_updraft
from server import ServerFailed
from workloads import LONG_CONTEXT, WORKLOADS, LoadFailed, run

# Passes of a long workload: every pass computes a prompt of 16384 tokens on each server.
LONG_PASSES_MAX = 2
# A server that takes longer than this to its first token is started once for the file cache and once to be measured.
SLOW_START_SECONDS = 30
# A server that takes longer than this for a long workload is asked for it once.
SLOW_LONG_SECONDS = 300
# Seeds of long workloads, apart from those of the rounds.
LONG_SEED = 50_000


class Comparison:
    """One model on all servers that can serve it."""

    def __init__(self, arguments, model, peers, log):
        self.arguments, self.model, self.log = arguments, model, log
        self.remarks, self.left_out = [], []
        self.updraft_failed = False
        self.peers = []
        for peer in peers:
            if reason := peer.refuses.get(model.key):
                self.left_out.append(f"{peer.name}, {model.title}: {reason}")
            else:
                self.peers.append(peer)
                if peer.remark:
                    self.remarks.append(f"{peer.name}: {peer.remark}")
        keys = [measure.key for letter in arguments.workloads for measure in WORKLOADS[letter].measures]
        self.numbers = {key: {} for key in keys}
        self.first_token_s, self.peak_bytes = {}, {}

    def names(self):
        """Who is still asked: nobody without Updraft, since there would be nothing to compare with."""
        return [] if self.updraft_failed else ["updraft"] + [peer.name for peer in self.peers]

    def give_up(self, name, reason):
        """A server that failed is not asked again; what it has answered stays."""
        self.log(f"\n{name}: {reason}")
        self.left_out.append(f"{name}, {self.model.title}: {reason}")
        self.peers = [peer for peer in self.peers if peer.name != name]
        self.updraft_failed = self.updraft_failed or name == "updraft"

    def start(self, name, kind):
        if name == "updraft":
            return start_updraft(self.arguments.binary, self.model, self.arguments.threads, kind)
        peer = next(peer for peer in self.peers if peer.name == name)
        try:
            return start(peer, self.model, self.arguments.threads, kind)
        except ModelFailed as error:
            raise ServerFailed(f"its form of the model cannot be made: {error}") from None

    def first_tokens(self):
        """From starting a process to its first token: each server alone, the file cache warm."""
        for name in self.names():
            if self.updraft_failed:
                return
            times = []
            # The first start warms the file cache and does not count.
            for number in range(self.arguments.starts + 1 if self.arguments.starts else 0):
                if number > 1 and min(times) > SLOW_START_SECONDS:
                    break
                server = None
                try:
                    server = self.start(name, "short")
                    server.wait()
                    times.append(server.seconds_to_first_token())
                except (ServerFailed, OSError, ValueError) as error:
                    self.give_up(name, f"start: {error}")
                    break
                finally:
                    if server is not None:
                        server.stop()
                self.log(".", end="")
            self.first_token_s[name] = times[1:]

    def short(self, letters):
        servers = {}
        try:
            for name in self.names():
                if self.updraft_failed:
                    return
                try:
                    server = self.start(name, "short")
                    # One after the other: some compile at their start, and would be late for each other.
                    server.wait()
                    servers[name] = server
                except ServerFailed as error:
                    self.give_up(name, str(error))
            for round_number in range(self.arguments.rounds):
                for letter in letters:
                    self._round(servers, letter, round_number)
        finally:
            for server in servers.values():
                server.stop()

    def _round(self, servers, letter, round_number):
        names = [name for name in self.names() if name in servers]
        turn = round_number % max(1, len(names))
        for name in names[turn:] + names[:turn]:
            self._ask(servers[name], letter, self.arguments.seed + round_number)
            if self.updraft_failed:
                return
            if name not in self.names():
                servers.pop(name).stop()
            elif letter == "c" and round_number == 0:
                self.peak_bytes[name] = [servers[name].memory_bytes("VmHWM")]

    def long(self, letters):
        slow = set()
        passes = min(self.arguments.rounds, LONG_PASSES_MAX)
        for number in range(passes):
            names = self.names() if number % 2 == 0 else self.names()[::-1]
            for name in names:
                if name in slow:
                    continue
                began = time.monotonic()
                for letter in letters if name in self.names() else []:
                    server = None
                    try:
                        server = self.start(name, "long")
                        server.wait()
                        self._ask(server, letter, self.arguments.seed + LONG_SEED + number)
                    except ServerFailed as error:
                        self.give_up(name, str(error))
                    finally:
                        if server is not None:
                            server.stop()
                is_slow = time.monotonic() - began > SLOW_LONG_SECONDS * len(letters)
                if is_slow and name in self.names() and number + 1 < passes:
                    slow.add(name)
                    self.remarks.append(f"{name}: one pass behind {LONG_CONTEXT} tokens, which takes it minutes")

    def _ask(self, server, letter, seed):
        try:
            numbers = run(WORKLOADS[letter], server, seed)
        except LoadFailed as error:
            self.give_up(server.name, f"workload {letter}: {error}; {server.log_end()[-500:]}")
            return
        for key, number in numbers.items():
            self.numbers[key].setdefault(server.name, []).append(number)
        self.log(".", end="")

    def measure(self):
        """Everything that was asked for."""
        names = self.names()
        letters = self.arguments.workloads
        short = [letter for letter in letters if not WORKLOADS[letter].is_long]
        long = [letter for letter in letters if WORKLOADS[letter].is_long]
        self.first_tokens()
        if short:
            self.short(short)
        if long:
            self.long(long)
        self.log("")
        have = [name for name in names if any(name in by_server for by_server in self.numbers.values())]
        return {
            "model": self.model.key,
            "title": self.model.title,
            "servers": have,
            "numbers": self.numbers,
            "first_token_s": self.first_token_s,
            "peak_bytes": self.peak_bytes,
            "remarks": self.remarks,
        }
