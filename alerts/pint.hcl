# What pint reports although it is intended. From the root of a checkout:
#   pint --offline --config alerts/pint.hcl lint alerts/scheduled-events.rules.yml alerts/inhibition.rules.yml

# Any series of these is something to report: the comparison was made when it was recorded.
rule {
  match { name = "ScheduledEvent(Pending|Started|HookFailed|Inhibitor)" }
  disable = ["alerts/comparison"]
}

# A changed NotBefore has to be a new alert: Alertmanager sends nothing when only a text changes.
rule {
  match { name = "ScheduledEventRescheduled" }
  disable = ["alerts/template"]
}

# pint takes a label that only one side of an `or` has for one that no series has.
rule {
  match { name = "ScheduledEventsConcurrent" }
  disable = ["alerts/template", "promql/impossible"]
}
rule {
  match { name = "azure_scheduled_events:vm(_event_new|_transitions:increase)?" }
  disable = ["promql/impossible"]
}

# `description` is joined to be part of the label `about`, and is not to be in the result.
rule {
  match { name = "azure_scheduled_events:event_text" }
  disable = ["promql/impossible"]
}

# The groups have different intervals; these rules take into account that the others' results are older.
rule {
  match { name = "azure_scheduled_events:vm_(hook_failed|event_state|event_gone|transitions:increase)" }
  disable = ["rule/dependency"]
}
