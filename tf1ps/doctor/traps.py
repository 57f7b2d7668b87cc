"""All rules of the traps of distributed training."""

from __future__ import annotations

from tf1ps.doctor import (
  cluster_rules,
  container_rules,
  ending_rules,
  input_rules,
  model_rules,
  placement_rules,
  queue_rules,
  session_rules,
  summary_rules,
  sync_rules,
)

RULES = (
  cluster_rules.RULES + session_rules.RULES + placement_rules.RULES + sync_rules.RULES
  + queue_rules.RULES + container_rules.RULES + input_rules.RULES + summary_rules.RULES
  + model_rules.RULES + ending_rules.RULES)
