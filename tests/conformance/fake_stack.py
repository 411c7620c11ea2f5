"""A stack of a page, for tests of the suite: one controller drives ranks over pipes; its training is a sum.

It stands for stacks of which the suite knows nothing: no framework, no code of this project, files only. Words after
the task make it lie: see `LIES`.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

LIES = {
    "forget-state": "goes on with the initial sum after a restore",
    "from-nothing": "starts at step 0 after a fault and tells so",
    "silent": "does not report faults",
    "false-alarm": "reports a fault where there is none",
    "orphan": "leaves a process behind",
    "trust": "restores without a look at the digest",
    "no-recovery": "ends with an error when a rank is lost",
    "repeat-samples": "consumes the samples of the step before after a restore",
    "loop": "starts again for ever",
    "parrot": "reports a loss of the step number",
    "step-digest": "reports a digest of the step number",
    "stay": "runs the ranks where it runs itself, and says that they are on the hosts of the task",
    "claim": "reports saves as committed that have failed",
    "dated": "takes a jump of its clock for a rank that hangs",
    "litter": "leaves a file next to its trace, which it does not read",
}

OPTIONS = {
    "sockets": "each rank reports its steps over a connection from its host, and a lost host gets no rank again",
    "shards": "each rank writes a file of each checkpoint",
}


START_SECONDS, HANG_SECONDS = 60.0, 5.0
"""Longest silence of a rank until its first step, and later; the end of one that was killed is seen at once."""


def host_of(task: dict, rank: int, lost: set[str]) -> dict:
    hosts = task["hosts"] or [{"name": f"host-{number}", "enter": []} for number in range(task["job"]["num_hosts"])]
    left = [one for one in hosts if one["name"] not in lost]
    return left[rank % len(left)]


class Trace:
    def __init__(self, directory: Path, name: str, attempt: int) -> None:
        self.attempt = attempt
        self.file = (directory / f"{name}-{os.getpid()}.jsonl").open("a")

    def tell(self, k: str, **more: object) -> None:
        record = {"k": k, "time_us": time.time_ns() // 1000, "attempt": self.attempt, **more}
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()


def samples(job: dict, step: int, rank: int, num_ranks: int) -> list[int]:
    chosen = random.Random(job["seed"] * 7919 + step).sample(range(10_000), job["global_sequences"])
    return chosen[rank::num_ranks]


def shard(rank: int) -> bytes:
    return json.dumps({"rank": rank, "padding": "y" * 5000}).encode()


def written(path: Path, body: bytes) -> bool:
    try:
        path.write_bytes(body)
    except OSError:
        return False
    return True


def rank_main(task: dict, rank: int, attempt: int) -> None:
    trace = Trace(Path(task["trace_directory"]), f"rank-{rank}", attempt)
    trace.tell("process", role="rank", rank=rank, pid=os.getpid(), host=os.environ["FAKE_HOST"])
    told = sys.stdout
    if port := int(os.environ["FAKE_PORT"]):
        told = socket.create_connection((task["address"], port), START_SECONDS).makefile("w")
        told.write(f"{rank}\n")
        told.flush()
    for line in sys.stdin:
        order = json.loads(line)
        if "restore" in order:
            trace.tell("restore", rank=rank, **order["restore"])
            continue
        if "save" in order:
            told.write(f"{written(Path(order['save']), shard(rank))}\n")
            told.flush()
            continue
        time.sleep(task["job"]["step_seconds"])
        trace.tell("step", rank=rank, **order)
        told.write(f"{order['step']}\n")
        told.flush()


class Controller:
    def __init__(self, task: dict, lies: set[str]) -> None:
        self.task, self.job, self.lies = task, task["job"], lies
        self.store = Path(task["checkpoint_directory"])
        self.store.mkdir(parents=True, exist_ok=True)
        self.attempt = task["attempt"]
        self.lost_hosts: set[str] = set()
        self.trace = Trace(Path(task["trace_directory"]), "controller", self.attempt)
        self.trace.tell("process", role="controller", pid=os.getpid())
        if "litter" in lies:
            Path(task["trace_directory"], "left").write_text("state")

    def spawn(self) -> list[subprocess.Popen]:
        arguments = [sys.executable, __file__, sys.argv[1], "--rank"]
        listener = socket.create_server((self.task["address"], 0)) if "sockets" in self.lies else None
        port = listener.getsockname()[1] if listener else 0
        self.hosts = [host_of(self.task, one, self.lost_hosts) for one in range(self.job["num_ranks"])]
        ranks = []
        for rank, host in enumerate(self.hosts):
            words = [] if "stay" in self.lies else host["enter"]
            variables = {**os.environ, "FAKE_PORT": str(port), "FAKE_HOST": host["name"]}
            command = [*words, *arguments, str(rank), str(self.attempt)]
            ranks.append(subprocess.Popen(command, env=variables, stdin=-1, stdout=-1, text=True))
        self.channels = {rank: one.stdout for rank, one in enumerate(ranks)}
        for _ in ranks if listener else ():
            listener.settimeout(START_SECONDS)
            told = listener.accept()[0].makefile("r")
            self.channels[int(told.readline())] = told
        return ranks

    def save(self, step: int, total: float, ranks: list[subprocess.Popen]) -> None:
        name = f"step-{step}"
        body = json.dumps({"step": step, "total": total, "padding": "x" * 5000}).encode()
        self.trace.tell("save", checkpoint=name, step=step, stage="begin")
        directory = self.store / f"tmp-{name}"
        directory.mkdir(exist_ok=True)
        contents = {"state.json": body}
        is_whole = written(directory / "state.json", body)
        for rank, one in enumerate(ranks if "shards" in self.lies else ()):
            contents[f"rank-{rank}.json"] = shard(rank)
            self.send(one, {"save": str(directory / f"rank-{rank}.json")})
            is_whole &= self.channels[rank].readline().strip() == "True"
        digests = {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}
        files = [{"path": path, "size_bytes": len(contents[path]), "sha256": digests[path]} for path in contents]
        manifest = {
            "apiVersion": "trainspec/v1",
            "kind": "CheckpointManifest",
            "save_id": f"{self.attempt}-{time.time_ns()}",
            "step": step,
            "files": files,
        }
        is_whole &= written(directory / "trainspec-manifest.json", json.dumps(manifest).encode())
        if is_whole:
            shutil.rmtree(self.store / name, ignore_errors=True)
            directory.rename(self.store / name)
            new = self.store / "new"
            is_whole = written(new, name.encode())
            if is_whole:
                new.rename(self.store / "latest")
        if not is_whole and "claim" not in self.lies:
            self.trace.tell("save", checkpoint=name, step=step, stage="failed", reason="a file could not be written")
            return
        digest = self.told(step, digests["state.json"])
        self.trace.tell("save", checkpoint=name, step=step, stage="committed", digest=digest)

    def told(self, step: int, digest: str) -> str:
        return "sha256:" + (f"{step:064x}" if "step-digest" in self.lies else digest)

    def restore(self) -> tuple[int, float, dict]:
        if "from-nothing" not in self.lies:
            for path in sorted(self.store.glob("step-*"), key=lambda one: -int(one.name[5:])):
                try:
                    body = (path / "state.json").read_bytes()
                    digest = hashlib.sha256(body).hexdigest()
                    manifest = json.loads((path / "trainspec-manifest.json").read_text())
                    if digest != manifest["files"][0]["sha256"] and "trust" not in self.lies:
                        raise ValueError("the digest differs")
                    state = json.loads(body.replace(b"\0", b"x"))
                    total = 0.0 if "forget-state" in self.lies else state["total"]
                    told = {"checkpoint": path.name, "source": "checkpoint"}
                    told["digest"] = self.told(state["step"], digest)
                    return state["step"], total, {"step": state["step"], **told}
                except (OSError, ValueError) as error:
                    self.trace.tell("refused", checkpoint=path.name, file="state.json", reason=str(error)[:200])
        return 0, 0.0, {"step": 0, "source": "initial"}

    def train(self) -> bool:
        """One attempt; whether it came to the end."""
        ranks = self.spawn()
        start, total, told = self.restore() if self.task["resume"] or self.attempt else (0, 0.0, None)
        told = told or {"step": 0, "source": "initial"}
        self.date = time.time()
        for one in ranks:
            self.send(one, {"restore": told})
        for step in range(start, self.job["num_steps"]):
            for fault in self.job.get("faults", ()):
                if fault["kind"] == "exception" and fault["step"] == step:
                    return self.lost(ranks, len(ranks) - 1)
            shift = 1 if "repeat-samples" in self.lies and start and step == start else 0
            ids = [samples(self.job, step - shift, rank, len(ranks)) for rank in range(len(ranks))]
            total += sum(map(sum, ids)) / 1e5
            loss = 10 / (1 + (step if "parrot" in self.lies else total))
            record = {"step": step + 1, "loss": loss, "learning_rate": 1e-3 / (1 + step)}
            for rank, one in enumerate(ranks):
                if not self.send(one, {**record, "sample_ids": ids[rank]}):
                    return self.lost(ranks, rank)
            lost = self.gather(ranks, START_SECONDS if step == start else HANG_SECONDS)
            if lost is not None:
                return self.lost(ranks, lost)
            if (step + 1) % self.job["checkpoint_interval_steps"] == 0:
                self.save(step + 1, total, ranks)
        for one in ranks:
            one.stdin.close()
            one.wait()
        if "false-alarm" in self.lies:
            self.trace.tell("fault", kind="process", rank=0)
        self.trace.tell("end", reason="completed", step=self.job["num_steps"], digest="sha256:" + "0" * 64)
        return True

    def send(self, one: subprocess.Popen, order: dict) -> bool:
        try:
            one.stdin.write(json.dumps(order) + "\n")
            one.stdin.flush()
        except OSError:
            return False
        return True

    def gather(self, ranks: list[subprocess.Popen], seconds: float) -> int | None:
        """Wait until each rank has told of its step; the rank that is gone or hangs, if one is."""
        for rank in range(len(ranks)):
            ready, _, _ = select.select([self.channels[rank]], [], [], seconds)
            if not ready or not self.channels[rank].readline():
                return rank
        passed, self.date = time.time() - self.date, time.time()
        return 0 if "dated" in self.lies and abs(passed) > START_SECONDS else None

    def lost(self, ranks: list[subprocess.Popen], rank: int) -> bool:
        if "silent" not in self.lies:
            kind = "process" if ranks[rank].poll() is not None else "hang"
            kind = "node" if "dated" in self.lies else kind
            self.trace.tell("fault", kind=kind, rank=rank)
            if "sockets" in self.lies and kind == "hang":
                self.lost_hosts.add(self.hosts[rank]["name"])
        for one in ranks:
            one.kill()
            one.wait()
        self.trace.tell("decision", action="restart")
        return False

    def run(self) -> int:
        barren, best = 0, -1
        while not self.train():
            if "no-recovery" in self.lies:
                return 1
            newest = max((int(path.name[5:]) for path in self.store.glob("step-*")), default=0)
            barren, best = (0, newest) if newest > best else (barren + 1, best)
            if barren >= 2 and "loop" not in self.lies:
                self.trace.tell("end", reason="crash-loop", step=newest)
                return 10
            self.attempt += 1
            self.trace.attempt = self.attempt
        if "orphan" in self.lies:
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
        return 0


def main() -> int:
    task = json.loads(Path(sys.argv[1]).read_text())
    if sys.argv[2:3] == ["--rank"]:
        rank_main(task, int(sys.argv[3]), int(sys.argv[4]))
        return 0
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    return Controller(task, set(sys.argv[2:])).run()


if __name__ == "__main__":
    sys.exit(main())
