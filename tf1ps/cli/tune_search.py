"""The options that tf1ps-tune tries, the combinations of the good ones, and its table."""

from __future__ import annotations

import math
import os
import statistics
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from tf1ps.training import Options, check_options

SAME, ROUNDED, STALER = "same", "rounded to 16 bits", "staler"
BASE = "your flags"
_GAIN = 1.05  # the least ratio of an option that helps
_NEAR = 0.97  # fewer flags, or an algorithm that stays the same, are preferred from here on
_INTER, _INTRA = "inter_op_parallelism_threads", "intra_op_parallelism_threads"
_LARGE_PACK = 2000000


class Candidate(NamedTuple):
  """Flags to try beside the user's."""

  flags: Tuple[str, ...]  # none: the user's alone
  kinds: Tuple[str, ...] = ()  # the options that they set, one or more of a table's groups
  learns: str = SAME

  @property
  def name(self) -> str:
    """The flags as a line."""
    return " ".join(self.flags) or BASE


class Result(NamedTuple):
  """A row of the table."""

  candidate: Candidate
  rates: Sequence[float]  # steps per second, one per round
  ratio: float  # the median over the rounds of the ratio to the user's flags
  loss: float  # after the same number of examples


def single_candidates(options: Options, threads: Sequence[Optional[int]], cpus: int = 0
                      ) -> List[Candidate]:
  """Returns the options to try one by one: those that go with the user's and change them.

  Args:
    options: the user's.
    threads: the user's thread flags, inter_op and intra_op; None: not given.
    cpus: processors of this machine; 0: look.
  """
  found = []
  if list(threads) == [None, None]:
    for number in sorted({1, max(1, (cpus or os.cpu_count() or 1) // 4)}):
      found.append(Candidate(("--%s=%d" % (_INTER, number), "--%s=%d" % (_INTRA, number)),
                             ("threads",)))
  for name, value, learns in (
      ("steps_per_execution", 4, SAME), ("steps_per_execution", 8, SAME),
      ("pack_bytes", 0, SAME), ("pack_bytes", _LARGE_PACK, SAME),
      ("wire_dtype", "bfloat16", ROUNDED), ("wire_dtype", "float16", ROUNDED),
      ("steps_in_flight", 2, STALER)):
    if getattr(options, name) == value:
      continue
    try:
      check_options(options._replace(**{name: value}))
    except ValueError:
      continue  # it does not go with the user's options
    found.append(Candidate(("--%s=%s" % (name, value),), (name,), learns))
  return found


def best_of_each(results: Sequence[Result]) -> List[Result]:
  """Returns the best result of each option that helps, the best one first."""
  best: Dict[tuple, Result] = {}
  for one in results:
    kinds = one.candidate.kinds
    if kinds and one.ratio >= _GAIN and (kinds not in best or one.ratio > best[kinds].ratio):
      best[kinds] = one
  return sorted(best.values(), key=lambda one: -one.ratio)


def combinations(winners: Sequence[Result], results: Sequence[Result] = ()) -> List[Candidate]:
  """Returns the combinations to measure, without the single winners.

  The best two, three and so on, of all and of those without staler gradients; all, with another
  value of an option that helps as well; each pair of three; and all that keep the algorithm.

  Args:
    winners: the best result of each option that helps.
    results: those of all values.
  """
  ones = [one.candidate for one in winners]
  fresh = [one for one in ones if STALER not in one.learns]
  sets = [those[:count] for those in (ones, fresh) for count in range(2, len(those) + 1)]
  for one in results:
    if one.ratio >= _GAIN and one.candidate not in ones:
      sets.append([one.candidate if each.kinds == one.candidate.kinds else each for each in ones])
  if len(ones) == 3:
    sets += [[ones[0], ones[2]], ones[1:]]
  sets.append([one for one in ones if one.learns == SAME])
  made: Dict[frozenset, Candidate] = {}
  for chosen in sets:
    key = frozenset(chosen)
    if len(chosen) > 1 and key not in made:
      made[key] = combine(chosen)
  return list(made.values())


def combine(chosen: Sequence[Candidate]) -> Candidate:
  """Returns one candidate with the flags of several."""
  learns = [name for name in (ROUNDED, STALER) if any(name in one.learns for one in chosen)]
  return Candidate(
    tuple(flag for one in chosen for flag in one.flags),
    tuple(kind for one in chosen for kind in one.kinds), ", ".join(learns) or SAME)


def ratio_to(rates: Sequence[float], base: Sequence[float]) -> float:
  """Returns the median of the ratios of rounds: two jobs of a round meet the same load."""
  return statistics.median(one / other for one, other in zip(rates, base))


def best_flags(results: Sequence[Result]) -> Tuple[Result, Optional[Result]]:
  """Returns the best result whose gradients are not staler, and a better one of all, or None."""
  same = _choose([one for one in results if STALER not in one.candidate.learns])
  best = _choose(results)
  is_better = STALER in best.candidate.learns and same.ratio < _NEAR * best.ratio
  return same, best if is_better else None


def _choose(results) -> Result:
  """The fastest; of those that are about as fast, the one with the fewest flags."""
  best = max(one.ratio for one in results)
  near = [one for one in results if one.ratio >= _NEAR * best]
  return min(near, key=lambda one: (len(one.candidate.kinds), -one.ratio))


def table(results: Sequence[Result], examples: int) -> str:
  """Returns the table, the fastest row first."""
  head = ("ratio", "steps/s (min to max)", "gradients", "loss", "option")
  rows = [head] + [(
    "%.2f" % one.ratio, "%s (%s to %s)" % tuple(map(_short, (
      statistics.median(one.rates), min(one.rates), max(one.rates)))),
    one.candidate.learns, "%.4g" % one.loss, one.candidate.name)
    for one in sorted(results, key=lambda one: -one.ratio)]
  widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
  lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
           for row in rows]
  return "\n".join(lines + [
    "ratio: the median over the rounds of the steps of an option to those of %s" % BASE,
    "loss: the chief's mean training loss over its examples %d to %d" % (examples // 2, examples)])


def as_json(results: Sequence[Result], examples: int, lost: Dict[str, str]) -> dict:
  """Returns the table and the flags to use for `json.dumps`."""
  same, staler = best_flags(results) if results else (None, None)
  return {
    "rows": [dict(flags=list(one.candidate.flags), steps_per_second=list(one.rates),
                  ratio=one.ratio, gradients=one.candidate.learns,
                  loss=None if math.isnan(one.loss) else one.loss) for one in results],
    "examples": examples,
    "lost": lost,
    "use": None if same is None else list(same.candidate.flags),
    "use_staler": None if staler is None else list(staler.candidate.flags)}


def _short(rate) -> str:
  return "%.3g" % rate if rate < 100 else "%.0f" % rate
