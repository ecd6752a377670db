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
    attempt-1/step-0000000100/checkpoint.json   its job, its files, their sizes and CRC-32s
    attempt-2/resume.json               where attempt 2 began, fixed once for all its ranks
    attempt-2/.step-0000000120.partial/ being written

Checksums cost one more pass over the data, by up to four threads of 1.8 GiB/s each (SHA-256: 1.1,
BLAKE2b: 0.5): at each save over what is in the page cache, and at the resume on rank 0, over the
one checkpoint that is chosen. They find accidents, not forgery.
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
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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
EXIT_WAIT = 2.0
"""The same at the end of the process, for what is not sent yet."""
EXIT_SECONDS = 2.0
"""What a process that was asked to stop leaves of its grace for ending, in seconds."""
LOWER_BOUND_WAIT = 15.0
"""Seconds for a durable checkpoint to become visible on a caching network file system."""
VERIFY_SECONDS = 120.0
"""Longest time in seconds for checksums at a resume; what is not read by then is not checked."""
STEPS_AVERAGED = 20
REQUEST_TIMEOUT = 10.0
MAX_BACKOFF = 30.0
HURRIED_BACKOFF = 2.0
MAX_ANSWER = 65_536
CHECKSUM_THREADS = 4
CHUNK = 1 << 20

_Number = TypeVar("_Number", int, float)
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


def complete_checkpoints(directory: Path, job: str | None = None) -> list[Checkpoint]:
    """All complete checkpoints of a job, oldest first: by step, then by attempt.

    Complete: all files of the manifest are there with their sizes. Checksums are not looked at.
    Those that say to be of another job than ``job`` (``NAMESPACE/NAME``) are left out.
    """
    published = _published(directory)
    return [each for each in published if _is_complete(each.path, each.step, job)]


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
        job: str | None = None,
        verify_seconds: float = VERIFY_SECONDS,
        grace_seconds: float = 30.0,
    ) -> None:
        """``keep``: newest complete checkpoints that are kept; with 1 a corrupt one has no
        fallback. ``job``: ``NAMESPACE/NAME``; None takes, and makes, checkpoints of any job.
        ``verify_seconds``: see VERIFY_SECONDS; 0: checksums are neither made nor checked.
        ``grace_seconds``: from SIGTERM to SIGKILL.
        """
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
        self.job = job
        self.verify_seconds = verify_seconds
        self.grace_seconds = grace_seconds
        self.last_step: int | None = None
        self._saved: int | None = None
        self._saved_at = time.monotonic()
        self._corrupt: frozenset[Path] = frozenset()
        self._terminated_at: float | None = None
        self._request = 0
        self._request_step: int | None = None
        self._step_times = _StepTimes()
        self._durable_report = 0
        self._reporter: _Reporter | None = None
        if progress_url:
            identity = {"attempt": attempt, "role": role, "rank": rank}
            interval = RANK_ZERO_INTERVAL if rank == 0 else OTHER_RANKS_INTERVAL
            self._reporter = _Reporter(progress_url, token_file, ca_file, identity, interval)
            atexit.register(lambda: self.close(self._patience(EXIT_WAIT)))

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
        name, namespace = env.get("GOODPUT_JOB"), env.get("GOODPUT_NAMESPACE")
        options: dict[str, Any] = {
            "rank": _number(env, "GOODPUT_RANK", 0),
            "world_size": _number(env, "GOODPUT_WORLD_SIZE", 1),
            "role": env.get("GOODPUT_ROLE") or "worker",
            "job": f"{namespace}/{name}" if name and namespace else None,
            "directory": Path(where) if where else None,
            "interval_seconds": _number(env, "GOODPUT_CHECKPOINT_INTERVAL_SECONDS", 600.0),
            "keep": _number(env, "GOODPUT_CHECKPOINT_KEEP", 2),
            "verify_seconds": _number(env, "GOODPUT_CHECKPOINT_VERIFY_SECONDS", VERIFY_SECONDS),
            "grace_seconds": _number(env, "GOODPUT_CHECKPOINT_GRACE_SECONDS", 30.0),
            "resume_step": _number(env, "GOODPUT_RESUME_STEP", 0),
            "progress_url": env.get("GOODPUT_PROGRESS_URL") or None,
            "token_file": env.get("GOODPUT_PROGRESS_TOKEN_FILE") or None,
            "ca_file": env.get("GOODPUT_PROGRESS_CA_FILE") or None,
        }
        options.update(overrides)
        if "attempt" not in options:
            attempt = _number(env, "GOODPUT_ATTEMPT", 0)
            if not attempt and options["directory"] and options["world_size"] == 1:
                attempt = 1 + max((n for n, _ in _attempts(options["directory"])), default=0)
            options["attempt"] = attempt or 1
        return cls(**options)

    @property
    def attempt_directory(self) -> Path | None:
        """Where this attempt may write; None without a checkpoint directory."""
        return self.directory / f"attempt-{self.attempt}" if self.directory else None

    # Progress

    def report(
        self,
        step: int,
        total_steps: int | None = None,
        loss: float | None = None,
        step_seconds: float | None = None,
    ) -> None:
        """Say that ``step`` steps are done. Sent in the background; only the newest counts.

        ``step_seconds``: how long this rank itself worked on a step, without waiting for others.
        Without it, the mean time between the last calls of this function is sent, without saves.
        """
        self.last_step = step
        self._step_times.done(step, time.monotonic())
        if self._reporter is not None:
            fields: dict[str, Any] = {"step": int(step)}
            if total_steps is not None:
                fields["totalSteps"] = int(total_steps)
            fields["loss"] = _finite(loss)
            seconds = _finite(step_seconds) if step_seconds is not None else self._step_times.mean()
            if seconds is not None and seconds > 0:
                fields["stepSeconds"] = seconds
            self._reporter.offer(fields, urgent=total_steps is not None and step >= total_steps)

    def report_durable(
        self, step: int, stall_seconds: float | None = None, wait: float | None = None
    ) -> bool:
        """Say that the checkpoint of ``step`` is durable; only rank 0 may.

        Waits up to ``wait`` seconds for the operator's answer and returns whether it came; None: 5,
        or after SIGTERM what is left of the grace. If it did not, the report is repeated in the
        background. ``checkpoint`` calls this itself.
        """
        self._mark_saved(step)
        if self._reporter is None or self.rank != 0:
            return False
        fields: dict[str, Any] = {"step": max(step, self.last_step or 0), "checkpointStep": step}
        if _finite(stall_seconds) is not None:
            fields["checkpointStallSeconds"] = _finite(stall_seconds)
        self._durable_report = self._reporter.offer(fields, urgent=True)
        patience = self._patience(DURABLE_WAIT) if wait is None else wait
        return self._reporter.wait(self._durable_report, patience)

    def _patience(self, usual: float) -> float:
        """Seconds to wait for an answer: a checkpoint saved on SIGTERM is worth what is left."""
        if self._terminated_at is None or self._reporter is None:
            return usual
        if self._reporter.has_answered(self._durable_report):
            return usual
        left = self._terminated_at + self.grace_seconds - EXIT_SECONDS - time.monotonic()
        return max(1.0, left)

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
            # No locks in here: the main thread may hold them.
            if self._terminated_at is None:
                self._terminated_at = time.monotonic()
            if self._reporter is not None:
                self._reporter.hurried = True
            if callable(previous):
                previous(number, frame)

        signal.signal(signal.SIGTERM, on_sigterm)
        return True

    @property
    def stop_requested(self) -> bool:
        """Time for a last save: SIGTERM came, or a newer attempt runs elsewhere."""
        return self._terminated_at is not None or self.superseded

    # Resuming

    def resume(self) -> Checkpoint | None:
        """The checkpoint to begin from, the same on every rank of the attempt; None: from step 0.

        Rank 0 takes the newest complete checkpoint of the attempts before this one whose checksums
        are right, and fixes the choice in ``attempt-N/resume.json``; the others wait for it. What
        is damaged is passed over, with a warning, even if it was reported durable. Raises
        ResumeError if that takes too long, or if the chosen checkpoint cannot be read here.
        """
        folder = self.attempt_directory
        if self.directory is None or folder is None:
            return None
        choice = self._fix_choice(folder) if self.rank == 0 else self._await_choice(folder)
        self._saved_at = time.monotonic()
        damaged = choice.get("damaged") or []
        self._corrupt = frozenset(self.directory / str(each["checkpoint"]) for each in damaged)
        found = self._chosen(choice)
        step = found.step if found else 0
        if found:
            self._saved = self.last_step = step
        if self._reporter is not None and self.attempt > 1:
            fields = {"step": step, "resumedFromStep": step}
            if self.rank == 0 and (step or self.resume_step):
                fields["checkpointStep"] = step  # An older one than was reported sets that back.
            if self.rank == 0 and damaged:
                fields["corruptStep"] = max(int(each["step"]) for each in damaged)
            self._reporter.offer(fields, urgent=True)
        return found

    def _chosen(self, choice: Mapping[str, Any]) -> Checkpoint | None:
        if choice["checkpoint"] is None:
            return None
        assert self.directory is not None
        step, path = int(choice["step"]), self.directory / str(choice["checkpoint"])
        wait = 0.0 if self.rank == 0 else self.timeout_seconds
        if not _poll(lambda: _is_complete(path, step), wait):
            raise ResumeError(
                f"attempt {self.attempt} resumes from {path}, but rank {self.rank} sees no "
                f"complete checkpoint there: is the same volume mounted on every rank?"
            )
        return Checkpoint(step, path, int(path.parent.name.split("-")[1]))

    def _fix_choice(self, folder: Path) -> dict[str, Any]:
        _make_directory(folder)
        file = folder / RESUME_FILE
        fixed = _read_json(file)
        if fixed is None:
            _publish_once(file, json.dumps(self._choose()))
            fixed = _read_json(file)
        if fixed is None:
            raise ResumeError(f"{file} was written but cannot be read back")
        return fixed

    def _choose(self) -> dict[str, Any]:
        """The newest sound checkpoint of the attempts before; the damaged ones that are newer."""
        _poll(lambda: self._newest_before() >= self.resume_step, LOWER_BOUND_WAIT)
        deadline = time.monotonic() + self.verify_seconds
        newest, damaged = None, []
        for candidate in reversed(self._before()):
            damage = _damage(candidate.path, candidate.step)
            if damage is None and _is_foreign(candidate.path, self.job):
                log.error(
                    "%s is not used: it is of another job than %s; to go on from a copy of another "
                    "job's checkpoints, call Worker.from_env(job=None)", candidate.path, self.job,
                )  # fmt: skip
                continue
            if damage is None and self.verify_seconds > 0:
                damage = _content_damage(candidate.path, deadline)
            if damage is None:
                newest = candidate
                break
            log.warning("the checkpoint of step %d is damaged: %s", candidate.step, damage)
            damaged.append({"step": candidate.step, "checkpoint": _name_of(candidate.path)})
        if (newest.step if newest else 0) < self.resume_step:
            log.error(
                "step %d was reported durable, but the newest complete checkpoint in %s is that "
                "of step %s (damaged ones: %d): resuming from there; was one deleted, or another "
                "volume mounted?",
                self.resume_step, self.directory, newest.step if newest else "none", len(damaged),
            )  # fmt: skip
        return {
            "attempt": self.attempt,
            "step": newest.step if newest else None,
            "checkpoint": _name_of(newest.path) if newest else None,
            "damaged": damaged,
        }

    def _before(self) -> list[Checkpoint]:
        """What the attempts before published, damaged or not."""
        assert self.directory is not None
        return [each for each in _published(self.directory) if each.attempt < self.attempt]

    def _newest_before(self) -> int:
        complete = (c.step for c in self._before() if _is_complete(c.path, c.step, self.job))
        return max(complete, default=0)

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
        """Whether to save now: the interval is over, a stop or a save was requested.

        The answer is this rank's own: if every rank takes part in a save, let rank 0 decide, and
        carry its answer to the others with the step's own collective. The interval is the one that
        the operator answered last before the save that began it.
        """
        if self.directory is None or step == self._saved:
            return False
        requested = self.checkpoint_requested(step)
        due = time.monotonic() - self._saved_at >= self.interval_seconds
        return due or requested or self.stop_requested

    def checkpoint_requested(self, step: int) -> bool:
        """Whether the operator asks for a save: for each request at one step only, the first asked.

        Part of ``should_checkpoint``; for those who decide by themselves when to save.
        """
        if self._reporter is not None and self._reporter.request > self._request:
            self._request, self._request_step = self._reporter.request, step
        return step == self._request_step and step != self._saved

    def _mark_saved(self, step: int) -> None:
        self._saved, self._saved_at = step, time.monotonic()
        if self._reporter is not None and self._reporter.interval_seconds is not None:
            self.interval_seconds = self._reporter.interval_seconds

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
        with self._step_times.paused():
            if folder is None or final is None or self.rank != 0 or _is_complete(final, step):
                with tempfile.TemporaryDirectory(prefix="goodput-discarded-") as scratch:
                    yield Path(scratch)
                self._mark_saved(step)
                return
            started = time.monotonic()
            partial = self._partial(step)
            try:
                yield partial
                if sharded:
                    self._await_parts(partial)
                self._publish(partial, final, step)
            except BaseException:
                _discard(partial)
                raise
            self.report_durable(step, stall_seconds=time.monotonic() - started)
            self._prune(Checkpoint(step, final, self.attempt))

    def _publish(self, partial: Path, final: Path, step: int) -> None:
        content: dict[str, Any] = {"step": step, "attempt": self.attempt}
        if self.job is not None:
            content["job"] = self.job
        _seal(partial, MANIFEST, content, self.verify_seconds > 0)
        _discard(final)  # It can only be there damaged: a complete one was handled before.
        os.rename(partial, final)
        _sync_directory(final.parent)

    @contextlib.contextmanager
    def checkpoint_part_dir(self, step: int) -> Iterator[Path]:
        """This rank's own directory within the checkpoint of ``step``, flushed when the block ends.

        Rank 0 publishes it, with the parts of all, by ``checkpoint(step, sharded=True)``.
        """
        with self._step_times.paused():
            if self.attempt_directory is None:
                with tempfile.TemporaryDirectory(prefix="goodput-discarded-") as scratch:
                    yield Path(scratch)
                return
            part = self._partial(step) / f"rank-{self.rank:05d}"
            part.mkdir(exist_ok=True)
            yield part
            content = {"step": step, "rank": self.rank}
            _seal(part, PART_MANIFEST, content, self.verify_seconds > 0)
            self._mark_saved(step)

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
        from is then among the newest ones listed here, and is kept. One that ``resume`` found
        damaged does not count, and goes when it is older than all that are kept.
        """
        assert self.directory is not None
        try:
            if max(number for number, _ in _attempts(self.directory)) > self.attempt:
                return
            complete = complete_checkpoints(self.directory, self.job)
            sound = [each for each in complete if each.path not in self._corrupt]
            kept = {each.path for each in sound[-self.keep :]} | {published.path}
            oldest = next((n for n, each in enumerate(complete) if each.path in kept), 0)
            for number, each in enumerate(complete):
                if each.path not in kept and (number < oldest or each.path not in self._corrupt):
                    _discard(each.path)
            for number, folder in _attempts(self.directory):
                if number < self.attempt:
                    _clear(folder)
        except (OSError, ValueError) as error:
            log.warning("old checkpoints were not deleted: %s", error)

    def close(self, timeout: float | None = None) -> None:
        """Send what is still to be reported, for at most ``timeout`` seconds.

        None: 5, or what is left of the grace if a checkpoint was saved on SIGTERM.
        """
        if self._reporter is not None:
            self._reporter.close(self._patience(DURABLE_WAIT) if timeout is None else timeout)


class _StepTimes:
    """How long a step took in the mean of the last ones, in seconds, without saves."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None
        self._paused = 0.0
        self._depth = 0
        self._recent: deque[tuple[int, float]] = deque(maxlen=STEPS_AVERAGED)

    def done(self, step: int, now: float) -> None:
        """``step`` steps are done at ``now``. The first one only starts the clock."""
        if self._last is not None:
            steps, seconds = step - self._last[0], now - self._last[1] - self._paused
            if steps == 0:
                return
            if steps > 0 and seconds > 0:
                self._recent.append((steps, seconds))
        self._last, self._paused = (step, now), 0.0

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What is done in this block is no part of a step. May be nested."""
        began, self._depth = time.monotonic(), self._depth + 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._paused += time.monotonic() - began

    def mean(self) -> float | None:
        """None before two steps were done."""
        steps = sum(each for each, _ in self._recent)
        return sum(seconds for _, seconds in self._recent) / steps if steps else None


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
        self.hurried = False
        """Repeat at short intervals: little time is left."""
        self.interval_seconds: float | None = None
        """Between checkpoints, as the operator answered last."""
        self.request = 0
        """The newest request for a checkpoint that the operator answered."""
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
            self._changed.notify_all()
            return self._offered

    def wait(self, number: int, timeout: float) -> bool:
        """Whether the report of this number, or a newer one, was accepted within the time."""
        with self._changed:
            self._changed.wait_for(lambda: self._answered >= number or self.superseded, timeout)
            return self._answered >= number

    def has_answered(self, number: int) -> bool:
        """Whether the report of this number, or a newer one, was accepted; or never can be."""
        return self._answered >= number or self.superseded

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
            self._take(self._post(body))
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

    def _take(self, answer: bytes) -> None:
        """Heed what the operator wishes; what is unknown or makes no sense is ignored."""
        try:
            wishes = json.loads(answer)
        except ValueError:
            return
        if not isinstance(wishes, dict):
            return
        interval, request = wishes.get("checkpointIntervalSeconds"), wishes.get("checkpointRequest")
        if isinstance(interval, (int, float)) and not isinstance(interval, bool):
            self.interval_seconds = _finite(interval) if interval > 0 else None
        if type(request) is int:
            self.request = max(self.request, request)

    def _post(self, body: Mapping[str, Any]) -> bytes:
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
            return bytes(reply.read(MAX_ANSWER))

    def _backoff(self) -> float:
        self._failures += 1
        longest = HURRIED_BACKOFF if self.hurried else MAX_BACKOFF
        return float(min(longest, 0.5 * 2 ** min(self._failures - 1, 10)))

    def _complain(self, reason: str) -> None:
        if reason != self._complaint:
            log.warning("progress was not reported (training goes on): %s", reason)
            self._complaint = reason


def _number(env: Mapping[str, str], name: str, default: _Number) -> _Number:
    """Of the type of its default. Raises ValueError that names the variable."""
    text = env.get(name)
    try:
        return type(default)(text) if text else default
    except ValueError:
        raise ValueError(f"{name}: {text!r} is no number; leave it out for {default:g}") from None


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


def _published(directory: Path) -> list[Checkpoint]:
    """What was published, damaged or not, oldest first: by step, then by attempt."""
    found: list[Checkpoint] = []
    for attempt, folder in _attempts(directory):
        steps = ((_STEP.fullmatch(path.name), path) for path in folder.glob("step-*"))
        found += [Checkpoint(int(match.group(1)), path, attempt) for match, path in steps if match]
    return sorted(found, key=lambda checkpoint: (checkpoint.step, checkpoint.attempt))


def _name_of(path: Path) -> str:
    """A checkpoint's path from the job's directory."""
    return f"{path.parent.name}/{path.name}"


def _is_complete(path: Path, step: int, job: str | None = None) -> bool:
    return _damage(path, step) is None and not _is_foreign(path, job)


def _is_foreign(path: Path, job: str | None) -> bool:
    """Whether a checkpoint says that it is of another job. Older ones do not say of which."""
    owner = (_read_json(path / MANIFEST) or {}).get("job")
    return job is not None and owner is not None and owner != job


def _damage(path: Path, step: int) -> str | None:
    """What a checkpoint lacks, by its manifest and the sizes of its files; None: nothing."""
    manifest = _read_json(path / MANIFEST)
    if manifest is not None and manifest.get("step") != step:
        return f"{path / MANIFEST} is that of step {manifest.get('step')!r}, not {step}"
    return _size_damage(path, MANIFEST)


def _is_sealed(path: Path, name: str) -> bool:
    """Whether every file that the manifest lists is there with its size."""
    return _size_damage(path, name) is None


def _size_damage(path: Path, name: str) -> str | None:
    manifest = _read_json(path / name)
    files = manifest.get("files") if manifest is not None else None
    if not isinstance(files, dict):
        return f"{path / name} is missing, or no whole manifest"
    for file, size in files.items():
        try:
            found = (path / file).stat().st_size
        except (OSError, ValueError) as error:
            return f"{path / file} cannot be found: {error}"
        if found != size:
            return f"{path / file} has {found} bytes; {name} says {size}"
    return None


def _content_damage(path: Path, deadline: float) -> str | None:
    """The first file whose content is not what its checksum says; None if there is none.

    Manifests of older workers have no checksums. Reads until ``deadline`` on the monotonic clock.
    """
    manifest = _read_json(path / MANIFEST)
    if manifest is None:
        return f"{path / MANIFEST} has vanished"
    expected = manifest.get("crc32")
    if not isinstance(expected, dict):
        return None
    if expected.keys() != manifest["files"].keys():
        return f"{path / MANIFEST} has checksums of other files than it lists"
    try:
        found = _checksums(path, expected, deadline)
    except (OSError, ValueError) as error:
        return f"{path} cannot be read: {error}"
    for file, checksum in found.items():
        if checksum is not None and checksum != expected[file]:
            return f"{path / file} has CRC-32 {checksum}; {MANIFEST} says {expected[file]}"
    unread = [file for file, checksum in found.items() if checksum is None]
    if unread:
        log.warning(
            "%s: time was too short to check %d of %d files (%s, ...); raise verify_seconds",
            path, len(unread), len(found), unread[0],
        )  # fmt: skip
    return None


def _checksums(
    path: Path, files: Iterable[str], deadline: float = math.inf
) -> dict[str, str | None]:
    """CRC-32 of files below a path, as 8 hex digits; None of those not read by the deadline."""
    names = list(files)

    def checksum(name: str) -> str | None:
        return _checksum(path / name, deadline)

    if len(names) <= 1:
        return {name: checksum(name) for name in names}
    # zlib computes without the interpreter's lock.
    with ThreadPoolExecutor(min(CHECKSUM_THREADS, len(names))) as pool:
        return dict(zip(names, pool.map(checksum, names)))  # noqa: B905 - not in Python 3.9


def _checksum(path: Path, deadline: float) -> str | None:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            if time.monotonic() > deadline:
                return None
            checksum = zlib.crc32(chunk, checksum)
    return f"{checksum:08x}"


def _seal(path: Path, name: str, content: Mapping[str, Any], checksums: bool) -> None:
    """Flush all files below a directory, then a manifest of them, then the directories."""
    files, directories = {}, []
    for folder, _, names in os.walk(path):
        directories.append(Path(folder))
        for file in (Path(folder) / n for n in names):
            if file != path / name:
                _sync_file(file)
                files[str(file.relative_to(path))] = file.stat().st_size
    manifest: dict[str, Any] = {**content, "files": files}
    if checksums:
        known = _part_checksums(path)
        made = _checksums(path, [file for file in files if file not in known])
        manifest["crc32"] = {**{file: known[file] for file in known if file in files}, **made}
    (path / name).write_text(json.dumps(manifest))
    _sync_file(path / name)
    for directory in reversed(directories):
        _sync_directory(directory)


def _part_checksums(path: Path) -> dict[str, str]:
    """Those that the ranks made of their parts: each reads its own files only."""
    found = {}
    for part in path.glob(f"rank-*/{PART_MANIFEST}"):
        for file, checksum in ((_read_json(part) or {}).get("crc32") or {}).items():
            found[f"{part.parent.name}/{file}"] = str(checksum)
    return found


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


def _clear(folder: Path) -> None:
    """Delete what was left half done by an attempt that is over."""
    for leftover in [*folder.glob(".step-*.partial"), *folder.glob(".discarded-*")]:
        _discard(leftover)
    for draft in folder.glob(f".{RESUME_FILE}.*"):
        draft.unlink(missing_ok=True)


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
