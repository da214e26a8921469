// Lists of labels, as PromQL writes them, and other fragments that rules share.
function(config) {
  local join(labels) = std.join(', ', labels),

  place:: join(config.placeLabels),
  vm:: join(config.placeLabels + [config.instanceLabel]),
  vmEvent:: join(config.placeLabels + [config.instanceLabel, 'event']),
  vmEventId:: join(config.placeLabels + [config.instanceLabel, 'event_id']),
  // An event as a VM lists it.
  listed:: join(config.placeLabels + [config.instanceLabel, 'event_id', 'event_type', 'event_source', 'event_status']),
  eventId:: join(config.placeLabels + ['event_id']),
  event:: join(config.placeLabels + ['event']),

  // What IMDS reports about where a VM is.
  where:: join(['resource_group', 'scale_set', 'zone']),
  // What alerts about an event have beside `event`.
  identity:: join(['event_id', 'event_type', 'event_source', 'resource_group', 'scale_set']),

  ephemeral:: join(config.podLabels),
}
