"""Flower's own run of an app, in this process: its ServerApp and strategies over a Grid that calls the client directly."""

import contextlib
import importlib
import logging
import pathlib
import sys
import types

from flwr.app import Context, RecordDict
from flwr.serverapp import Grid
from tributary.flower import _load

logging.getLogger("flwr").setLevel(logging.WARNING)
EXAMPLES = pathlib.Path(__file__).parent.parent / "examples" / "flower"


class InProcess(Grid):
    """Sites numbered from 1, each with its context, which are called one after the other."""

    def __init__(self, client, sites, run_config):
        self.client = client
        self.contexts = {
            site + 1: Context(1, site + 1, {"partition-id": site, "num-partitions": sites}, RecordDict(), dict(run_config)) for site in range(sites)
        }

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        return [self.client(message, self.contexts[message.metadata.dst_node_id]) for message in messages]

    @property
    def run(self):
        return types.SimpleNamespace(run_id=1)

    # The strategies call no more than this.
    get_nodes = set_run = create_message = push_messages = pull_messages = None


@contextlib.contextmanager
def app(folder):
    """The client of an example, its module of the server, and its configuration."""
    path = sys.path[:]
    try:
        client, config = _load(EXAMPLES / folder)
        yield client, importlib.import_module(f"{client_package(folder)}.server_app"), config
    finally:
        sys.path[:] = path


def client_package(folder):
    (package,) = (inner.name for inner in (EXAMPLES / folder).iterdir() if (inner / "client_app.py").exists())
    return package


def run_flower(client, server, sites, config, **more):
    """Runs the app's server over the client."""
    identify()
    grid = InProcess(client, sites, config)
    server.app(grid, Context(1, 1, {}, RecordDict(), {**config, **more}))


def identify():
    """Names the server as the sender of messages, as a SuperLink does."""
    with contextlib.suppress(ImportError):  # Versions before 1.42 name none.
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
