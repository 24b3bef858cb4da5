"""What schemathesis cannot know (.ci/contract.py): bodies of bytes, which the document calls by media types of our own, how whole
numbers are written, and that a browser has its cookie and no token."""

import os

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


if cookie := os.environ.get("CONTRACT_COOKIE"):

    @schemathesis.hook
    def before_call(context, case, kwargs):
        """Tokens and cookies that were made up would come before the one of the sign-in."""
        case.cookies = {}
        case.headers = {name: value for name, value in (case.headers or {}).items() if name.lower() not in ("authorization", "cookie")}
        case.headers["Cookie"] = cookie
