"""What every model of the API shares: camelCase on the wire, frozen in memory."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class ApiModel(BaseModel):
    """A part of a custom resource.

    Unknown fields are dropped, as the API server itself drops them: an object written for a newer
    version of the operator must still be readable by this one.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
    )
