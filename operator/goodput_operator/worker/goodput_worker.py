"""Reference client of goodput-operator for training code. Copy this file or install the package.

Standard library only, Python 3.9 or newer. Without the operator's environment every call is a
harmless no-op, so the same script runs on a laptop::

    worker = Worker.from_env()
    worker.watch_sigterm()              # after the framework has set up its own signal handling
    start = 0
    if (found := worker.resume()) is not None:
        start, model = found.step, load(found.path)
    for step in range(start + 1, total + 1):
        loss = train(model, step)
        worker.report(step, total_steps=total, loss=loss)
        if worker.should_checkpoint(step):
            with worker.checkpoint(step) as path:
                save(model, path)
        if worker.stop_requested:       # preempted, drained or suspended: saved above
            sys.exit(143)

A step counts completed optimiser steps: the checkpoint of step 120 holds the state after 120.

Layout of the job's checkpoint directory. An attempt writes only below its own ``attempt-N/``; it
deletes outside of it only what newer complete checkpoints have made superfluous, and nothing once
a newer attempt exists, so ranks that survive on a partitioned node can do no harm::

    attempt-1/step-0000000100/          complete: published by one rename
    attempt-1/step-0000000100/checkpoint.json   its files and their sizes
    attempt-2/resume.json               where attempt 2 began, fixed once for all its ranks
    attempt-2/.step-0000000120.partial/ being written
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import logging
import math
import os
import re
import shutil
import signal
import ssl
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Checkpoint", "CheckpointError", "ResumeError", "Worker", "complete_checkpoints"]

log = logging.getLogger("goodput_worker")

MANIFEST = "checkpoint.json"
PART_MANIFEST = "part.json"
RESUME_FILE = "resume.json"
RANK_ZERO_INTERVAL = 1.5
"""Seconds between the reports of rank 0."""
OTHER_RANKS_INTERVAL = 30.0
DURABLE_WAIT = 5.0
"""Longest time in seconds that a save waits for the operator to have noted it."""
LOWER_BOUND_WAIT = 15.0
"""Seconds for a durable checkpoint to become visible on a caching network file system."""
REQUEST_TIMEOUT = 10.0
MAX_BACKOFF = 30.0

_STEP = re.compile(r"step-(\d{10,})")
_ATTEMPT = re.compile(r"attempt-(\d+)")
_NO_DIRECTORY_FSYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES}
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EACCES}


class CheckpointError(RuntimeError):
    """A checkpoint could not be completed; nothing was published."""


class ResumeError(RuntimeError):
    """The ranks of this attempt could not agree on where to resume; going on would diverge."""


class Checkpoint(NamedTuple):
    """A complete checkpoint: the state after ``step`` steps, in the directory ``path``."""

    step: int
    path: Path
    attempt: int


def complete_checkpoints(directory: Path) -> list[Checkpoint]:
    """All complete checkpoints of a job, oldest first: by step, then by attempt."""
    found = []
    for attempt, folder in _attempts(directory):
        for path in folder.glob("step-*"):
            match = _STEP.fullmatch(path.name)
            if match and _is_complete(path, int(match.group(1))):
                found.append(Checkpoint(int(match.group(1)), path, attempt))
    return sorted(found, key=lambda checkpoint: (checkpoint.step, checkpoint.attempt))


class Worker:
    """One rank of a TrainingJob. Times in seconds; ``directory`` is the job's, not the attempt's.

    ``report`` and everything about progress never raise and never block. ``resume`` and
    ``checkpoint`` do raise: going on with the wrong state, or unsaved, must be seen.
    """

    def __init__(
        self,
        *,
        attempt: int = 1,
        rank: int = 0,
        world_size: int = 1,
        role: str = "worker",
        directory: Path | None = None,
        interval_seconds: float = 600.0,
        resume_step: int = 0,
        progress_url: str | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        keep: int = 2,
        timeout_seconds: float = 300.0,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep: {keep}; at least one complete checkpoint must be kept")
        self.attempt = attempt
        self.rank = rank
        self.world_size = world_size
        self.role = role
        self.directory = directory
        self.interval_seconds = interval_seconds
        self.resume_step = resume_step
        self.keep = keep
        self.timeout_seconds = timeout_seconds
        self.last_step: int | None = None
        self._saved: int | None = None
        self._saved_at = time.monotonic()
        self._resumed: Checkpoint | None = None
        self._terminated = False
        self._reporter: _Reporter | None = None
        if progress_url:
            identity = {"attempt": attempt, "role": role, "rank": rank}
            interval = RANK_ZERO_INTERVAL if rank == 0 else OTHER_RANKS_INTERVAL
            self._reporter = _Reporter(progress_url, token_file, ca_file, identity, interval)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Worker:
        """The rank that the ``GOODPUT_*`` variables describe; ``overrides`` win over them.

        Without an attempt in the environment (a laptop), a single process takes the next free
        attempt of its checkpoint directory, so that running it again resumes.
        """
        env = os.environ if environ is None else environ
        where = env.get("GOODPUT_CHECKPOINT_DIR", "")
        if "://" in where:
            log.warning(
                "%s is no file path: save by a library that writes there, below attempt-N/, "
                "and call report_durable",
                where,
            )
            where = ""
        options: dict[str, Any] = {
            "rank": int(env.get("GOODPUT_RANK") or 0),
            "world_size": int(env.get("GOODPUT_WORLD_SIZE") or 1),
            "role": env.get("GOODPUT_ROLE") or "worker",
            "directory": Path(where) if where else None,
            "interval_seconds": float(env.get("GOODPUT_CHECKPOINT_INTERVAL_SECONDS") or 600),
            "resume_step": int(env.get("GOODPUT_RESUME_STEP") or 0),
            "progress_url": env.get("GOODPUT_PROGRESS_URL") or None,
            "token_file": env.get("GOODPUT_PROGRESS_TOKEN_FILE") or None,
            "ca_file": env.get("GOODPUT_PROGRESS_CA_FILE") or None,
        }
        options.update(overrides)
        if "attempt" not in options:
            attempt = int(env.get("GOODPUT_ATTEMPT") or 0)
            if not attempt and options["directory"] and options["world_size"] == 1:
                attempt = 1 + max((n for n, _ in _attempts(options["directory"])), default=0)
            options["attempt"] = attempt or 1
        return cls(**options)

    @property
    def attempt_directory(self) -> Path | None:
        """Where this attempt may write; None without a checkpoint directory."""
        return self.directory / f"attempt-{self.attempt}" if self.directory else None

    # Progress

    def report(self, step: int, total_steps: int | None = None, loss: float | None = None) -> None:
        """Say that ``step`` steps are done. Sent in the background; only the newest counts."""
        self.last_step = step
        if self._reporter is not None:
            fields: dict[str, Any] = {"step": int(step)}
            if total_steps is not None:
                fields["totalSteps"] = int(total_steps)
            fields["loss"] = _finite(loss)
            self._reporter.offer(fields, urgent=total_steps is not None and step >= total_steps)

    def report_durable(
        self, step: int, stall_seconds: float | None = None, wait: float = DURABLE_WAIT
    ) -> bool:
        """Say that the checkpoint of ``step`` is durable; only rank 0 may.

        Waits up to ``wait`` seconds for the operator's answer and returns whether it came. If it
        did not, the report is repeated in the background. ``checkpoint`` calls this itself.
        """
        if self._reporter is None or self.rank != 0:
            return False
        fields: dict[str, Any] = {"step": max(step, self.last_step or 0), "checkpointStep": step}
        if _finite(stall_seconds) is not None:
            fields["checkpointStallSeconds"] = _finite(stall_seconds)
        return self._reporter.wait(self._reporter.offer(fields, urgent=True), wait)

    @property
    def superseded(self) -> bool:
        """The operator has started a newer attempt; this one runs on for nothing."""
        return self._reporter is not None and self._reporter.superseded

    # Stopping

    def watch_sigterm(self) -> bool:
        """Let SIGTERM set ``stop_requested``; a handler that was there is called afterwards.

        To be called by the main thread, after the framework has started (JAX's distributed
        runtime installs a handler of its own). Returns whether it was installed. The loop must
        then look at ``stop_requested``: SIGTERM alone no longer ends the process.
        """
        if threading.current_thread() is not threading.main_thread():
            log.warning("SIGTERM can be watched by the main thread only")
            return False
        previous = signal.getsignal(signal.SIGTERM)

        def on_sigterm(number: int, frame: Any) -> None:
            self._terminated = True
            if callable(previous):
                previous(number, frame)

        signal.signal(signal.SIGTERM, on_sigterm)
        return True

    @property
    def stop_requested(self) -> bool:
        """Time for a last save: SIGTERM came, or a newer attempt runs elsewhere."""
        return self._terminated or self.superseded

    # Resuming

    def resume(self) -> Checkpoint | None:
        """The checkpoint to begin from, the same on every rank of the attempt; None: from step 0.

        Rank 0 takes the newest complete checkpoint of the attempts before this one and fixes the
        choice in ``attempt-N/resume.json``; the others wait for it. Raises ResumeError if that
        takes too long, or if the chosen checkpoint cannot be read here.
        """
        folder = self.attempt_directory
        if self.directory is None or folder is None:
            return None
        choice = self._fix_choice(folder) if self.rank == 0 else self._await_choice(folder)
        self._saved_at = time.monotonic()
        step = 0
        if choice["checkpoint"] is not None:
            step = int(choice["step"])
            path = self.directory / str(choice["checkpoint"])
            wait = 0.0 if self.rank == 0 else self.timeout_seconds
            if not _poll(lambda: _is_complete(path, step), wait):
                raise ResumeError(
                    f"attempt {self.attempt} resumes from {path}, but rank {self.rank} sees no "
                    f"complete checkpoint there: is the same volume mounted on every rank?"
                )
            attempt = int(path.parent.name.split("-")[1])
            self._resumed = Checkpoint(step, path, attempt)
            self._saved = self.last_step = step
        if self._reporter is not None and self.attempt > 1:
            fields = {"step": step, "resumedFromStep": step}
            if self.rank == 0 and step:
                fields["checkpointStep"] = step
            self._reporter.offer(fields, urgent=True)
        return self._resumed

    def _fix_choice(self, folder: Path) -> dict[str, Any]:
        _make_directory(folder)
        fixed = _read_json(folder / RESUME_FILE)
        if fixed is not None:
            return fixed
        _poll(lambda: self._newest_before() >= self.resume_step, LOWER_BOUND_WAIT)
        before = self._before()
        newest = before[-1] if before else None
        if (newest.step if newest else 0) < self.resume_step:
            log.error(
                "step %d was reported durable, but the newest complete checkpoint in %s is that "
                "of step %s: resuming from there; was one deleted, or another volume mounted?",
                self.resume_step, self.directory, newest.step if newest else "none",
            )  # fmt: skip
        choice = {
            "attempt": self.attempt,
            "step": newest.step if newest else None,
            "checkpoint": f"{newest.path.parent.name}/{newest.path.name}" if newest else None,
        }
        _publish_once(folder / RESUME_FILE, json.dumps(choice))
        fixed = _read_json(folder / RESUME_FILE)
        if fixed is None:
            raise ResumeError(f"{folder / RESUME_FILE} was written but cannot be read back")
        return fixed

    def _before(self) -> list[Checkpoint]:
        assert self.directory is not None
        return [c for c in complete_checkpoints(self.directory) if c.attempt < self.attempt]

    def _newest_before(self) -> int:
        before = self._before()
        return before[-1].step if before else 0

    def _await_choice(self, folder: Path) -> dict[str, Any]:
        file = folder / RESUME_FILE
        choice: dict[str, Any] | None = None

        def seen() -> bool:
            nonlocal choice
            choice = _read_json(file)
            return choice is not None

        _poll(seen, self.timeout_seconds)
        if choice is None:
            raise ResumeError(
                f"rank {self.rank} waited {self.timeout_seconds:g} s for rank 0 to write {file}"
            )
        return choice

    # Saving

    def should_checkpoint(self, step: int) -> bool:
        """Whether it is time to save: the interval is over, or a stop was requested.

        The answer follows this rank's clock: if every rank takes part in a save, let rank 0 decide.
        """
        if self.directory is None or step == self._saved:
            return False
        due = time.monotonic() - self._saved_at >= self.interval_seconds
        return due or self.stop_requested

    @contextlib.contextmanager
    def checkpoint(self, step: int, sharded: bool = False) -> Iterator[Path]:
        """A directory to write the state after ``step`` steps to; published when the block ends.

        Files are flushed to disk, then appear at once under ``attempt-N/step-…`` and the operator
        is told. If the block raises, nothing is published. Rank 0 saves: what other ranks write
        here, or anyone without a checkpoint directory, is discarded. ``sharded``: the other ranks
        write by ``checkpoint_part_dir``, and publishing waits for all their parts.
        """
        folder = self.attempt_directory
        final = folder / _step_name(step) if folder else None
        if folder is None or final is None or self.rank != 0 or _is_complete(final, step):
            with tempfile.TemporaryDirectory(prefix="goodput-discarded-") as scratch:
                yield Path(scratch)
            self._saved, self._saved_at = step, time.monotonic()
            return
        started = time.monotonic()
        partial = self._partial(step)
        try:
            yield partial
            if sharded:
                self._await_parts(partial)
            _seal(partial, MANIFEST, {"step": step, "attempt": self.attempt})
            _discard(final)  # It can only be there damaged: a complete one was handled above.
            os.rename(partial, final)
            _sync_directory(folder)
        except BaseException:
            _discard(partial)
            raise
        self._saved, self._saved_at = step, time.monotonic()
        self.report_durable(step, stall_seconds=self._saved_at - started)
        self._prune(Checkpoint(step, final, self.attempt))

    @contextlib.contextmanager
    def checkpoint_part_dir(self, step: int) -> Iterator[Path]:
        """This rank's own directory within the checkpoint of ``step``, flushed when the block ends.

        Rank 0 publishes it, with the parts of all, by ``checkpoint(step, sharded=True)``.
        """
        if self.attempt_directory is None:
            with tempfile.TemporaryDirectory(prefix="goodput-discarded-") as scratch:
                yield Path(scratch)
            return
        part = self._partial(step) / f"rank-{self.rank:05d}"
        part.mkdir(exist_ok=True)
        yield part
        _seal(part, PART_MANIFEST, {"step": step, "rank": self.rank})
        self._saved, self._saved_at = step, time.monotonic()

    def _partial(self, step: int) -> Path:
        assert self.attempt_directory is not None
        partial = self.attempt_directory / f".{_step_name(step)}.partial"
        _make_directory(partial)
        return partial

    def _await_parts(self, partial: Path) -> None:
        def missing() -> list[int]:
            ranks = range(1, self.world_size)
            return [r for r in ranks if not _is_sealed(partial / f"rank-{r:05d}", PART_MANIFEST)]

        if not _poll(lambda: not missing(), self.timeout_seconds):
            raise CheckpointError(f"no part of ranks {missing()} in {partial}")

    def _prune(self, published: Checkpoint) -> None:
        """Delete what the newest ``keep`` checkpoints have made superfluous. Never raises.

        Looks for a newer attempt *before* listing: what that attempt can have chosen to resume
        from is then among the newest ones listed here, and is kept.
        """
        assert self.directory is not None
        try:
            if max(number for number, _ in _attempts(self.directory)) > self.attempt:
                return
            complete = complete_checkpoints(self.directory)
            kept = {checkpoint.path for checkpoint in complete[-self.keep :]} | {published.path}
            for checkpoint in complete:
                if checkpoint.path not in kept:
                    _discard(checkpoint.path)
            for number, folder in _attempts(self.directory):
                leftovers = [*folder.glob(".step-*.partial"), *folder.glob(".discarded-*")]
                for leftover in leftovers if number < self.attempt else ():
                    _discard(leftover)
        except (OSError, ValueError) as error:
            log.warning("old checkpoints were not deleted: %s", error)

    def close(self, timeout: float = 5.0) -> None:
        """Send what is still to be reported, for at most ``timeout`` seconds."""
        if self._reporter is not None:
            self._reporter.close(timeout)


class _Reporter:
    """Sends the newest report from a thread of its own; a newer one replaces what was not sent."""

    def __init__(
        self,
        url: str,
        token_file: str | None,
        ca_file: str | None,
        identity: Mapping[str, Any],
        interval: float,
    ) -> None:
        self.superseded = False
        self._url, self._token_file, self._ca_file = url, token_file, ca_file
        self._fields: dict[str, Any] = dict(identity)
        self._interval = interval
        self._changed = threading.Condition()
        self._offered = self._answered = self._urgent = 0
        self._next_at = 0.0
        self._failures = 0
        self._closing = False
        self._complaint = ""
        self._thread: threading.Thread | None = None

    def offer(self, fields: Mapping[str, Any], urgent: bool = False) -> int:
        """Merge into the next report; returns its number. Urgent ones are sent at once."""
        with self._changed:
            self._fields.update(fields)
            self._offered += 1
            if urgent:
                self._urgent, self._next_at = self._offered, 0.0
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="goodput", daemon=True)
                self._thread.start()
                atexit.register(self.close, 2.0)
            self._changed.notify_all()
            return self._offered

    def wait(self, number: int, timeout: float) -> bool:
        """Whether the report of this number, or a newer one, was accepted within the time."""
        with self._changed:
            self._changed.wait_for(lambda: self._answered >= number or self.superseded, timeout)
            return self._answered >= number

    def close(self, timeout: float) -> None:
        """Send what is pending without waiting for the interval, then end the thread."""
        with self._changed:
            self._closing, self._next_at = True, 0.0
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due():
                    if self._closing and self._offered == self._answered:
                        return
                    left = self._next_at - time.monotonic()
                    self._changed.wait(left if left > 0 and self._pending() else None)
                number, body = self._offered, dict(self._fields)
            answered, delay = self._send(body)
            with self._changed:
                if answered:
                    self._answered = max(self._answered, number)
                # What became urgent while this one was sent goes out at once.
                overtaken = answered and self._urgent > number
                self._next_at = 0.0 if overtaken else time.monotonic() + delay
                self._changed.notify_all()
                if self.superseded:
                    return

    def _pending(self) -> bool:
        return self._offered > self._answered

    def _due(self) -> bool:
        return self._pending() and time.monotonic() >= self._next_at

    def _send(self, body: Mapping[str, Any]) -> tuple[bool, float]:
        """POST a report: whether it needs no repeating, and seconds until the next request."""
        try:
            self._post(body)
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code}: {_error_text(error)}"
            if error.code == 409:
                self.superseded = True
                log.error("this attempt is over: %s", reason)
                return False, 0.0
            self._complain(reason)
            if error.code in (400, 413, 422):
                return True, self._interval
            return False, max(self._backoff(), _retry_after(error))
        except (OSError, ValueError, ssl.SSLError) as error:
            self._complain(str(error))
            return False, self._backoff()
        self._failures = 0
        if self._complaint:
            log.info("progress is reported again")
        self._complaint = ""
        return True, self._interval

    def _post(self, body: Mapping[str, Any]) -> None:
        headers = {"Content-Type": "application/json"}
        if self._token_file:
            # Read each time: the kubelet rotates it.
            headers["Authorization"] = f"Bearer {Path(self._token_file).read_text().strip()}"
        request = urllib.request.Request(
            self._url, json.dumps(body).encode(), headers, method="POST"
        )
        # No proxy: the endpoint is inside the cluster.
        handlers: list[Any] = [urllib.request.ProxyHandler({})]
        if self._url.startswith("https:"):
            context = ssl.create_default_context(cafile=self._ca_file or None)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        with urllib.request.build_opener(*handlers).open(request, timeout=REQUEST_TIMEOUT) as reply:
            reply.read()

    def _backoff(self) -> float:
        self._failures += 1
        return float(min(MAX_BACKOFF, 0.5 * 2 ** min(self._failures - 1, 10)))

    def _complain(self, reason: str) -> None:
        if reason != self._complaint:
            log.warning("progress was not reported (training goes on): %s", reason)
            self._complaint = reason


def _finite(value: Any) -> float | None:
    """As a plain float; None if it is no finite number. Takes arrays of one element."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _error_text(error: urllib.error.HTTPError) -> str:
    text = error.read(4096).decode("utf-8", "replace")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(text)["error"])
    return text or str(error.reason)


def _retry_after(error: urllib.error.HTTPError) -> float:
    value = _finite(error.headers.get("Retry-After"))
    return min(MAX_BACKOFF, max(0.0, value or 0.0))


def _step_name(step: int) -> str:
    return f"step-{step:010d}"


def _attempts(directory: Path) -> list[tuple[int, Path]]:
    if not directory.is_dir():
        return []
    matches = [(_ATTEMPT.fullmatch(path.name), path) for path in directory.iterdir()]
    return sorted((int(match.group(1)), path) for match, path in matches if match)


def _is_complete(path: Path, step: int) -> bool:
    manifest = _read_json(path / MANIFEST)
    return manifest is not None and manifest.get("step") == step and _is_sealed(path, MANIFEST)


def _is_sealed(path: Path, name: str) -> bool:
    """Whether every file that the manifest lists is there with its size."""
    manifest = _read_json(path / name)
    if manifest is None:
        return False
    try:
        files = manifest["files"].items()
        return all((path / file).stat().st_size == size for file, size in files)
    except (OSError, AttributeError, KeyError):
        return False


def _seal(path: Path, name: str, content: Mapping[str, Any]) -> None:
    """Flush all files below a directory, then a manifest of them, then the directories."""
    files, directories = {}, []
    for folder, _, names in os.walk(path):
        directories.append(Path(folder))
        for file in (Path(folder) / n for n in names):
            if file != path / name:
                _sync_file(file)
                files[str(file.relative_to(path))] = file.stat().st_size
    (path / name).write_text(json.dumps({**content, "files": files}))
    _sync_file(path / name)
    for directory in reversed(directories):
        _sync_directory(directory)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    try:
        _sync_file(path)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_FSYNC:
            raise


def _make_directory(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    _sync_directory(path.parent)


def _publish_once(path: Path, text: str) -> None:
    """Create a file with its whole content, unless it exists: the first writer wins."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    draft.write_text(text)
    _sync_file(draft)
    try:
        os.link(draft, path)
    except FileExistsError:
        log.info("%s exists already", path)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # No hard links here: readers may see it half written, and then read it again.
        with contextlib.suppress(FileExistsError), path.open("x") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    finally:
        draft.unlink()
    _sync_directory(path.parent)


def _discard(path: Path) -> None:
    """Delete a directory, renamed first: one that is half deleted never looks complete."""
    trash = path.with_name(f".discarded-{uuid.uuid4().hex}")
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, trash)
        shutil.rmtree(trash, ignore_errors=True)


def _read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if it isn't there, or not whole yet."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _poll(condition: Callable[[], bool], timeout: float) -> bool:
    """Whether the condition came true within ``timeout`` seconds."""
    deadline, pause = time.monotonic() + timeout, 0.05
    while not condition():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(1.0, pause * 1.5)
    return True
