"""The options that tf1ps-tune tries, the combinations of the good options, and its table."""

from __future__ import annotations

import math
import os
import statistics
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from tf1ps.training import Options, check_options

SAME, ROUNDED, STALER = "same", "rounded to 16 bits", "staler"
BASE = "your flags"
_GAIN = 1.05  # the least ratio of an option that helps
_NEAR = 0.97  # at this part of the best rate or more, fewer flags or the same algorithm win


class Candidate(NamedTuple):
  """Flags to try in addition to the user's flags."""

  flags: Tuple[str, ...]  # (): only the user's flags
  kinds: Tuple[str, ...] = ()  # the options that the flags set
  learns: str = SAME

  @property
  def name(self) -> str:
    return " ".join(self.flags) or BASE


class Result(NamedTuple):
  """A row of the table."""

  candidate: Candidate
  rates: Sequence[float]  # steps per second, in each round
  ratio: float  # the median over the rounds of the ratio to the user's flags
  loss: float  # the loss after the same number of examples in all rows


def single_candidates(options: Options, tries_threads: bool, cpus: int = 0) -> List[Candidate]:
  """Returns the options to try alone: options that change the user's options and fit them.

  Args:
    options: the user's options.
    tries_threads: whether to try thread counts, because the user gives no count.
    cpus: the number of processors of this machine; 0: ask the system.
  """
  candidates = []
  if tries_threads:
    for number in sorted({1, max(1, (cpus or os.cpu_count() or 1) // 4)}):
      candidates.append(Candidate(("--threads=%d" % number,), ("threads",)))
  for name, value, learns in (
      ("steps_per_execution", 4, SAME), ("steps_per_execution", 8, SAME),
      ("wire_dtype", "bfloat16", ROUNDED), ("wire_dtype", "float16", ROUNDED),
      ("overlap", 2, STALER)):
    if getattr(options, name) == value:
      continue
    try:
      check_options(options._replace(**{name: value}))
    except ValueError:
      continue  # the option does not fit the user's options
    candidates.append(Candidate(("--%s=%s" % (name, value),), (name,), learns))
  return candidates


def best_of_each(results: Sequence[Result]) -> List[Result]:
  """Returns the best result of each option that helps; the best option comes first."""
  best: Dict[tuple, Result] = {}
  for result in results:
    kinds = result.candidate.kinds
    if kinds and result.ratio >= _GAIN and (kinds not in best or result.ratio > best[kinds].ratio):
      best[kinds] = result
  return sorted(best.values(), key=lambda result: -result.ratio)


def combinations(winners: Sequence[Result], results: Sequence[Result] = ()) -> List[Candidate]:
  """Returns the combinations to measure, without the single winners.

  They are: the best two, three and so on, both of all winners and of the winners without staler
  gradients; all winners, with one option at another value that also helps; each pair of three
  winners; and all winners that keep the algorithm.

  Args:
    winners: the best result of each option that helps.
    results: the results of all values.
  """
  singles = [winner.candidate for winner in winners]
  fresh = [candidate for candidate in singles if STALER not in candidate.learns]
  sets = [best[:count] for best in (singles, fresh) for count in range(2, len(best) + 1)]
  for result in results:
    other = result.candidate
    if result.ratio >= _GAIN and other not in singles:
      sets.append([other if single.kinds == other.kinds else single for single in singles])
  if len(singles) == 3:
    sets += [[singles[0], singles[2]], singles[1:]]
  sets.append([candidate for candidate in singles if candidate.learns == SAME])
  combined: Dict[frozenset, Candidate] = {}
  for chosen in sets:
    key = frozenset(chosen)
    if len(chosen) > 1 and key not in combined:
      combined[key] = combine(chosen)
  return list(combined.values())


def combine(chosen: Sequence[Candidate]) -> Candidate:
  """Returns a candidate with the flags of several candidates."""
  learns = [name for name in (ROUNDED, STALER)
            if any(name in candidate.learns for candidate in chosen)]
  return Candidate(
    tuple(flag for candidate in chosen for flag in candidate.flags),
    tuple(kind for candidate in chosen for kind in candidate.kinds), ", ".join(learns) or SAME)


def ratio_to(rates: Sequence[float], base: Sequence[float]) -> float:
  """Returns the median of the rounds' ratios; the jobs of a round run under the same load."""
  return statistics.median(rate / base_rate for rate, base_rate in zip(rates, base))


def best_flags(results: Sequence[Result]) -> Tuple[Result, Optional[Result]]:
  """Returns the best result without staler gradients, and a better result with them or None."""
  same = _choose([result for result in results if STALER not in result.candidate.learns])
  best = _choose(results)
  is_better = STALER in best.candidate.learns and same.ratio < _NEAR * best.ratio
  return same, best if is_better else None


def _choose(results) -> Result:
  """Returns the result with the fewest flags of all that are about as fast as the fastest."""
  best = max(result.ratio for result in results)
  near = [result for result in results if result.ratio >= _NEAR * best]
  return min(near, key=lambda result: (len(result.candidate.kinds), -result.ratio))


def table(results: Sequence[Result], examples: int) -> str:
  """Returns the text of the table, the fastest row first."""
  head = ("ratio", "steps/s (min to max)", "gradients", "loss", "option")
  rows = [head] + [(
    "%.2f" % result.ratio, "%s (%s to %s)" % tuple(map(_short, (
      statistics.median(result.rates), min(result.rates), max(result.rates)))),
    result.candidate.learns, "%.4g" % result.loss, result.candidate.name)
    for result in sorted(results, key=lambda result: -result.ratio)]
  widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
  lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
           for row in rows]
  return "\n".join(lines + [
    "ratio: the median over the rounds of the steps of an option to those of %s" % BASE,
    "loss: the chief's mean training loss over its examples %d to %d" % (examples // 2, examples)])


def as_json(results: Sequence[Result], examples: int, lost: Dict[str, str]) -> dict:
  """Returns the table and the flags to use, for `json.dumps`."""
  same, staler = best_flags(results) if results else (None, None)
  return {
    "rows": [dict(flags=list(result.candidate.flags), steps_per_second=list(result.rates),
                  ratio=result.ratio, gradients=result.candidate.learns,
                  loss=None if math.isnan(result.loss) else result.loss) for result in results],
    "examples": examples,
    "lost": lost,
    "use": None if same is None else list(same.candidate.flags),
    "use_staler": None if staler is None else list(staler.candidate.flags)}


def _short(rate) -> str:
  return "%.3g" % rate if rate < 100 else "%.0f" % rate
