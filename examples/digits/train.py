"""Trains a small convolutional network on scikit-learn's handwritten digits, data parallel in JAX.

Alone: ``python train.py``. As ranks of a gang: JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and
JAX_PROCESS_ID say who it is, and GOODPUT_* where checkpoints go; goodput-operator sets all of them.

What step s does depends on nothing but the seed, s and the state before it, and the state is saved
whole, so a run that was resumed goes on exactly as one that was never interrupted. The number of
ranks changes nothing but the order in which floating-point sums are made.
"""

import argparse
import json
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from goodput_worker import Worker
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

log = logging.getLogger("train")

Params = dict[str, jax.Array]
HELD_OUT = 357
"""Images that are never trained on: the same ones in every run, whatever its seed."""
STOPPED = 143
"""Exit code after a last save on SIGTERM, as a shell would say it: stopped, not done."""


class State(NamedTuple):
    """All that a step depends on: parameters, Adam's moments and the number of steps done."""

    params: Params
    first: Params
    second: Params
    step: jax.Array


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=768, help="images per step, over all ranks")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--checkpoint-every",
        type=int,
        default=0,
        help="steps between checkpoints; 0: by time, GOODPUT_CHECKPOINT_INTERVAL_SECONDS",
    )
    parser.add_argument("--log-every", type=int, default=1, help="steps between printed lines")
    parser.add_argument("--min-accuracy", type=float, default=0.0, help="exit with 1 below it")
    parser.add_argument("--min-step-seconds", type=float, default=0.0, help="slow a demo down")
    parser.add_argument(
        "--heartbeat-seconds", type=int, default=10, help="silence after which a rank is dead"
    )
    parser.add_argument(
        "--start-seconds", type=int, default=300, help="how long to wait for the other ranks"
    )
    return parser.parse_args()


# Ranks


def join_gang(options: argparse.Namespace) -> None:
    """Connect to the other ranks, if there are any. Raises if they are not there in time."""
    ranks = int(os.environ.get("JAX_NUM_PROCESSES", "1"))
    if ranks == 1:
        return
    rank = int(os.environ["JAX_PROCESS_ID"])
    coordinator = os.environ["JAX_COORDINATOR_ADDRESS"]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # SIGTERM is answered by a last save of our own.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        coordinator_address=resolved(coordinator, options.start_seconds),
        num_processes=ranks,
        process_id=rank,
        initialization_timeout=options.start_seconds,
        heartbeat_timeout_seconds=options.heartbeat_seconds,
        shutdown_timeout_seconds=60,
    )


def resolved(address: str, seconds: float) -> str:
    """``host:port`` with the host as an IP address, once its name resolves: pods take a moment."""
    host, port = address.rsplit(":", 1)
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{host} did not resolve in {seconds:g} s: {error}") from error
            time.sleep(0.5)
        else:
            ip = str(found[0][4][0])
            return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


# Data and model


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (8×8, 0 to 1) and labels to train on, and the same held out."""
    data = load_digits()
    images = data.images.astype(np.float32)[..., None] / 16.0
    labels = data.target.astype(np.int32)
    order = np.random.default_rng(1797).permutation(len(labels))
    train, held_out = order[HELD_OUT:], order[:HELD_OUT]
    return images[train], labels[train], images[held_out], labels[held_out]


def batch_of(step: int, seed: int, size: int, total: int) -> np.ndarray:
    """Indices of the images of a step, without repetition."""
    return np.random.default_rng([seed, step]).permutation(total)[:size]


def initial_state(seed: int) -> State:
    shapes = {
        "conv1": (3, 3, 1, 32),
        "conv2": (3, 3, 32, 64),
        "dense": (4 * 4 * 64, 128),
        "out": (128, 10),
    }
    params: Params = {}
    for key, (name, shape) in zip(
        jax.random.split(jax.random.key(seed), len(shapes)), shapes.items(), strict=True
    ):
        scale = np.sqrt(2.0 / np.prod(shape[:-1]))  # He et al. 2015
        params[name] = scale * jax.random.normal(key, shape)
        params[f"{name}_bias"] = jnp.zeros(shape[-1])
    zeros = {name: jnp.zeros_like(value) for name, value in params.items()}
    return State(params, zeros, zeros, jnp.zeros((), jnp.int32))


def logits(params: Params, images: jax.Array) -> jax.Array:
    x = images
    for name in ("conv1", "conv2"):
        x = jax.lax.conv_general_dilated(
            x, params[name], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + params[f"{name}_bias"])
    x = x.reshape(x.shape[0], 4, 2, 4, 2, x.shape[-1]).max((2, 4)).reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ params["dense"] + params["dense_bias"])
    return x @ params["out"] + params["out_bias"]


def mean_loss(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    log_likelihood = jax.nn.log_softmax(logits(params, images))
    return -jnp.mean(jnp.take_along_axis(log_likelihood, labels[:, None], axis=1))


def adam(state: State, gradients: Params, rate: float) -> State:
    """One step of Adam (Kingma and Ba 2015), with its usual constants."""
    step = state.step + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state.second, gradients)
    count = step.astype(jnp.float32)
    correction = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    params = jax.tree.map(
        lambda p, m, v: p - correction * m / (jnp.sqrt(v) + 1e-8), state.params, first, second
    )
    return State(params, first, second, step)


# Checkpoints


def save(state: State, path: Path) -> None:
    """Every array of the state, in one file of NumPy's."""
    leaves = jax.tree.leaves(state)
    np.savez(path / "state.npz", *[np.asarray(leaf) for leaf in leaves])


def load(path: Path, like: State) -> State:
    with np.load(path / "state.npz") as file:
        leaves = [file[f"arr_{index}"] for index in range(len(file.files))]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def write_result(worker: Worker, result: dict[str, Any]) -> None:
    """``attempt-N/result.json``, whole or not at all."""
    folder = worker.attempt_directory
    if folder is not None and worker.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / ".result.json"
        with draft.open("w") as file:
            json.dump(result, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / "result.json")


# Training


class Trainer:
    """The replicated state, and the step that the ranks make together."""

    def __init__(self, options: argparse.Namespace, state: State) -> None:
        mesh = Mesh(np.array(jax.devices()), ("ranks",))
        self.sharded = NamedSharding(mesh, PartitionSpec("ranks"))
        self.replicated = NamedSharding(mesh, PartitionSpec())
        self.options = options
        self.images, self.labels, self.held_out, self.held_out_labels = digits()
        self.state: State = jax.tree.map(self._everywhere, state)

        def step(
            state: State, images: jax.Array, labels: jax.Array, stop: jax.Array
        ) -> tuple[State, jax.Array, jax.Array]:
            loss, gradients = jax.value_and_grad(mean_loss)(state.params, images, labels)
            return adam(state, gradients, options.learning_rate), loss, jnp.any(stop)

        self._step = jax.jit(step, out_shardings=self.replicated, donate_argnums=0)

    def _everywhere(self, value: Any) -> jax.Array:
        return jax.make_array_from_process_local_data(self.replicated, np.asarray(value))

    def _shards(self, value: np.ndarray) -> jax.Array:
        """A global array of which this rank holds its own, equal share of the rows."""
        rank, ranks = jax.process_index(), jax.process_count()
        share = len(value) // ranks
        local = value[rank * share : (rank + 1) * share]
        return jax.make_array_from_process_local_data(self.sharded, local, value.shape)

    def train(self, step: int, stop: bool) -> tuple[float, bool]:
        """Step number ``step``: its loss before the update, and whether any rank wants to stop."""
        rows = batch_of(step, self.options.seed, self.options.batch, len(self.labels))
        flags = np.full(jax.device_count(), stop)
        self.state, loss, any_stop = self._step(
            self.state,
            self._shards(self.images[rows]),
            self._shards(self.labels[rows]),
            self._shards(flags),
        )
        return float(loss), bool(any_stop)

    def accuracy(self) -> float:
        """Share of the held-out images that are recognised."""
        params = jax.tree.map(np.asarray, self.state.params)
        predicted = np.argmax(np.asarray(logits(params, self.held_out)), axis=1)
        return float(np.mean(predicted == self.held_out_labels))


def run(options: argparse.Namespace) -> int:
    join_gang(options)
    worker = Worker.from_env(rank=jax.process_index(), world_size=jax.process_count())
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    worker.watch_sigterm()
    if options.batch % jax.device_count():
        raise SystemExit(f"--batch {options.batch} is no multiple of {jax.device_count()} devices")
    state, start = initial_state(options.seed), 0
    if (found := worker.resume()) is not None:
        start, state = found.step, load(found.path, state)
    trainer = Trainer(options, state)
    print_line({"attempt": worker.attempt, "rank": worker.rank, "resumedFromStep": start})

    for step in range(start + 1, options.steps + 1):
        began = time.monotonic()
        loss, stop = trainer.train(step, worker.stop_requested)
        worker.report(step, total_steps=options.steps, loss=loss)
        if worker.rank == 0 and step % options.log_every == 0:
            print_line({"attempt": worker.attempt, "step": step, "loss": loss})
        if is_due(worker, options, step, stop):
            with worker.checkpoint(step) as path:
                save(trainer.state, path)
        if stop and step < options.steps:
            print_line({"attempt": worker.attempt, "rank": worker.rank, "stoppedAtStep": step})
            return STOPPED
        time.sleep(max(0.0, options.min_step_seconds - (time.monotonic() - began)))
    return finish(worker, trainer, options)


def is_due(worker: Worker, options: argparse.Namespace, step: int, stop: bool) -> bool:
    """Whether to save now. The state is the same on every rank, so rank 0's is the one saved.

    So rank 0 decides, and the others need not know. Were the state sharded, its decision would
    have to travel through the step, as the wish to stop does.
    """
    if worker.rank != 0:
        return False
    if options.checkpoint_every:
        due = step % options.checkpoint_every == 0 or worker.checkpoint_requested(step)
    else:
        due = worker.should_checkpoint(step)
    return due or stop or step == options.steps


def finish(worker: Worker, trainer: Trainer, options: argparse.Namespace) -> int:
    accuracy = trainer.accuracy()
    result = {
        "final": True,
        "accuracy": accuracy,
        "attempt": worker.attempt,
        "steps": options.steps,
        "ranks": worker.world_size,
    }
    if worker.rank == 0:
        print_line(result)
    write_result(worker, result)
    if accuracy < options.min_accuracy:
        log.error("held-out accuracy %.4f is below %.4f", accuracy, options.min_accuracy)
        return 1
    return 0


def print_line(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    logging.getLogger("jax").setLevel(logging.WARNING)
    # In a container this is process 1, which ignores SIGTERM unless told otherwise.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(STOPPED))
    try:
        code = run(arguments())
        # Waits for all ranks: none may leave while rank 0 still saves.
        jax.distributed.shutdown()
    except Exception:
        log.exception("training failed")
        # No orderly shutdown: it would wait for ranks that may be gone.
        sys.stderr.flush()
        os._exit(1)
    sys.exit(code)


if __name__ == "__main__":
    main()
