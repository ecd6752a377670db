"""``NodeHealth``: what a node has done to jobs of late. One per penalised node, of its name.

Cluster-wide and written by the operator alone; deleting one forgets what it holds.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from goodput_operator.api.base import ApiModel

MAX_RECENT = 50
MAX_MESSAGE = 256

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class FailureKind(StrEnum):
    """What a node is blamed for."""

    NODE_LOST = "nodeLost"
    CONDITION = "condition"
    POD_REFUSED = "podRefused"
    CRASH = "crash"
    HANG = "hang"


class NodeFailure(ApiModel):
    """One attempt of a job that the node has ended. The job's UID and the attempt identify it."""

    job: str = Field(max_length=512, description="The TrainingJob, as namespace/name.")
    job_uid: str = Field(max_length=64, description="UID of the TrainingJob.")
    attempt: int = Field(description="The attempt that ended.")
    kind: FailureKind
    time: Time = Field(description="When the attempt ended.")
    message: str = Field(default="", max_length=MAX_MESSAGE, description="What was seen.")


class NodeHealthStatus(ApiModel):
    """What the node has done of late, and what follows from it."""

    node_uid: str = Field(default="", max_length=64, description="UID of the Node that is meant.")
    system_uuid: str = Field(
        default="",
        max_length=128,
        description="status.nodeInfo.systemUUID of the machine that is meant.",
    )
    score: float = Field(
        default=0.0,
        description="Weight of the failures at updatedAt; it halves with each half-life.",
    )
    avoided: bool = Field(
        default=False, description="Whether it is used only when there is no other room."
    )
    count: int = Field(default=0, description="Failures that are remembered.")
    failures: dict[str, int] = Field(default_factory=dict, description="The same by kind.")
    last_failure: NodeFailure | None = Field(default=None, description="The newest of them.")
    recent: tuple[NodeFailure, ...] = Field(
        default=(),
        max_length=MAX_RECENT,
        description="The failures that are remembered, newest first. The score follows from these.",
    )
    updated_at: Time | None = Field(default=None, description="When this was written.")
