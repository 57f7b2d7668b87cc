"""The flags of what travels between workers and ps, and how often."""

from __future__ import annotations

from absl import flags

from tf1ps.cli.flags import define
from tf1ps.transfer import groups


def define_transfer() -> None:
  """How values and gradients travel, and how steps are put together."""
  group = "Transfer"
  define(group, flags.DEFINE_integer, "pack_bytes", groups.PACK_BYTES,
         "Variables of less than so many bytes travel together, a message for all of a ps, and so "
         "do their gradients; 0: each alone.", lower_bound=0)
  define(group, flags.DEFINE_enum, "wire_dtype", "float32", ["float32", "bfloat16", "float16"],
         "What float32 values and gradients are sent as; variables stay float32.")
  define(group, flags.DEFINE_boolean, "prefetch", False,
         "Compute each step on values fetched during the one before: gradients are one update "
         "older. Asynchronous updates only.")
  define(group, flags.DEFINE_integer, "steps_per_run", 1,
         "The steps of an asynchronous worker in one run of its session, each on a batch of its "
         "own: fewer trips to the ps. Hooks, stops and checkpoints act between runs.",
         above_zero=True)
  define(group, flags.DEFINE_integer, "steps_in_flight", 1,
         "The steps of an asynchronous worker that run at the same time: one travels while another "
         "computes, on older values.", above_zero=True)
  define(group, flags.DEFINE_integer, "accumulate", 1,
         "The batches of a worker that make one gradient, their mean: a larger batch, pulled and "
         "pushed for once.", above_zero=True)
