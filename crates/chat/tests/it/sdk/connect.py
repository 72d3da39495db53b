"""A client of the Python SDK with the format of the environment, and helpers for its programs."""

import asyncio
import json
import os
import sys

from centrifuge import Client

IS_PROTOBUF = os.environ.get("FORMAT") == "protobuf"


def print_line(what):
    print(json.dumps(what), flush=True)


def encode(data):
    """In Protobuf, data is bytes."""
    return json.dumps(data).encode() if IS_PROTOBUF else data


def decode(data):
    return json.loads(data) if IS_PROTOBUF else data


def new_client():
    url, token = sys.argv[1:3]
    return Client(
        url,
        token=token,
        use_protobuf=IS_PROTOBUF,
        min_reconnect_delay=0.05,
        max_reconnect_delay=0.2,
        timeout=30.0,
        proxy=None,
    )


async def end_of_input():
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
