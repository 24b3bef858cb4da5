"""What schemathesis cannot know (.ci/contract.py): bodies of bytes, which the document calls by media types of our own, and how whole
numbers are written."""

import schemathesis
from hypothesis import strategies

for media in (
    "application/vnd.tributary.secure-agg",
    "application/vnd.tributary.masked-input",
    "application/vnd.safetensors",
):
    schemathesis.openapi.media_type(media, strategies.binary(max_size=256))

    @schemathesis.serializer(media)
    def as_it_is(context, value):
        return value if isinstance(value, bytes) else str(value).encode()


def whole(value):
    """JSON Schema takes 1.0 for an integer, and the coordinator does not (docs/API.md)."""
    if isinstance(value, dict):
        return {name: whole(part) for name, part in value.items()}
    if isinstance(value, list):
        return [whole(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@schemathesis.hook
def map_body(context, body):
    return whole(body)
