"""What to do about what Kueue says of a queue, where it does not say so itself."""

from goodput_operator import constants as c

_REMEDIES = (
    (
        "is inactive",
        "it is stopped (spec.stopPolicy is Hold or HoldAndDrain), being deleted, or lacks a "
        "ResourceFlavor or an active AdmissionCheck: kubectl describe it",
    ),
    ("is stopped", "its spec.stopPolicy is Hold or HoldAndDrain; set it to None to go on"),
    ("is terminating or missing", "make it again under the same name, or use another queue"),
    ("doesn't exist", f"create it, or correct the label {c.LABEL_QUEUE}"),
)


def with_remedy(message: str) -> str:
    """The message, and the remedy if one is known."""
    for said, remedy in _REMEDIES:
        if said in message:
            return f"{message.rstrip('.')}; {remedy}"
    return message
