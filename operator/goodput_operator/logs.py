"""Structured logs: JSON or text, with the job and its attempt on each line that concerns one."""

import contextvars
import json
import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from goodput_operator.domain.model import JobKey

_job: contextvars.ContextVar[tuple[str, int] | None] = contextvars.ContextVar("job", default=None)


@contextmanager
def job_context(key: JobKey, attempt: int) -> Iterator[None]:
    """Lines logged inside, also by tasks started inside, carry this job and attempt."""
    token = _job.set((str(key), attempt))
    try:
        yield
    finally:
        _job.reset(token)


def set_up(level: str, as_json: bool) -> None:
    """Send all logs to standard error, and kopf's own below warnings nowhere."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in ("kopf", "aiohttp", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; a traceback is one string."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        job = _job.get()
        if job is not None:
            line["job"], line["attempt"] = job
        if record.exc_info:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """For people: time, level, job, message."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, and a traceback below it."""
        job = _job.get()
        about = f" [{job[0]} a{job[1]}]" if job else ""
        line = f"{_time(record)} {record.levelname:<7}{about} {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
