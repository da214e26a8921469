// The recording rules that alerts and dashboards share.
{
  local config = $._config,
  local labels = (import 'labels.libsonnet')(config),
  // How `%(...)s` in expressions reads.
  local words = labels {
    keepDown: config.keepDownSeconds,
    keepGone: config.keepGoneSeconds,
    instance: config.instanceLabel,
    name: config.nameLabel,
    vm: labels.vm,
    vmEvent: labels.vmEvent,
    vmEventId: labels.vmEventId,
    eventId: labels.eventId,
    listed: labels.listed,
    event: labels.event,
    where: labels.where,
    place: labels.place,
    identity: labels.identity,
    ephemeral: labels.ephemeral,
  },
  local record(name, expr, labels={}) = {
    record: 'azure_scheduled_events:' + name,
    expr: std.stripChars(expr % words, '\n'),
    [if labels != {} then 'labels']: labels,
  },

  // A fact about an event from a metric with a series per VM and event: the present value, else the last one known while
  // the rules know the event.
  local fact(name, metric, aggregation) = record(
    'event_fact',
    |||
      %(aggregation)s by (%%(event)s) (
        %(aggregation)s by (%%(eventId)s) (azure_scheduled_events_event_%(metric)s)
        * on (%%(eventId)s) group_left (event)
        azure_scheduled_events:event_key
      )
      or on (%%(event)s)
        azure_scheduled_events:event_fact{fact="%(name)s"}
      and on (%%(event)s)
        azure_scheduled_events:event_identity
    ||| % { name: name, metric: metric, aggregation: aggregation },
    { fact: name },
  ),
  // Adds the severity of an alert, by the type of the event.
  local withSeverity(vector, severities) =
    local typesOf(severity) = [type for type in std.objectFields(severities) if type != 'other' && severities[type] == severity];
    std.foldl(
      function(inner, severity) 'label_replace(%s, "severity", "%s", "event_type", "%s")' % [inner, severity, std.join('|', typesOf(severity))],
      [severity for severity in std.set(std.objectValues(severities)) if typesOf(severity) != []],
      'label_replace(%s, "severity", "%s", "", "")' % [vector, severities.other]
    ),

  // What alerts about an event have in common: `what` restricts it to a status, and `time` is its value.
  local event(status, severities, what, time) = record(
    'event',
    |||
      %s
      * on (%%(event)s) group_left ()
      (%s)
    ||| % [withSeverity('azure_scheduled_events:event_text ' + what, severities), time],
    { event_status: status },
  ),
  local notBefore = 'azure_scheduled_events:event_fact{fact="not_before"} or on (%(event)s) 0 * azure_scheduled_events:event_identity',

  vmRules:: [
    { record: 'azure_scheduled_events:job', expr: 'vector(1)', labels: { job: job } }
    for job in config.jobs
  ] + [
    // One series per VM: 1 if its exporter gets answers from Azure, 0 if it gets none, -1 if it cannot be scraped. The
    // rule refers to itself, so that the VM's scale set, zone and resource group, once known, are kept while it is down.
    record('vm', |||
      max without (%(ephemeral)s) (
        azure_scheduled_events_up or (up == 0 and on (job) azure_scheduled_events:job) - 1
      )
      * on (%(vm)s) group_left (%(where)s)
      topk by (%(vm)s) (1,
          group by (%(vm)s, %(where)s) (azure_scheduled_events_instance_info)
        or on (%(vm)s)
          group by (%(vm)s, %(where)s) (azure_scheduled_events:vm)
        or on (%(vm)s)
          group by (%(vm)s) (azure_scheduled_events_up or up == 0)
      )
    |||),
    // The number of VMs in each place: whether there are any can be read from this without reading all of them.
    record('vms', 'count without (%(instance)s, %(name)s) (azure_scheduled_events:vm)'),
    // One series per job whose VMs are, or were when it last had any, Spot VMs only.
    record('spot_job', |||
      (
          group by (job, priority) (azure_scheduled_events_instance_info{priority="Spot"})
        or
          azure_scheduled_events:spot_job
      )
      unless on (job)
        azure_scheduled_events_instance_info{priority!="Spot"}
    |||),
  ],

  eventRules:: [
    // What VMs list for themselves and was not known at the last evaluation: only that gets the labels below, as joins of
    // all events of all VMs would be most of an evaluation. Without a resource group, IMDS has not reported the place yet.
    record('vm_event_found', |||
      azure_scheduled_events_event_info{target="self"}
      unless on (%(listed)s)
      azure_scheduled_events:vm_event{resource_group!=""}
    |||),

    // The label `event` exists because VMs that share an event may report its id in different case, and PromQL cannot fold
    // case. A GUID, which is what Azure uses, is reduced to its decimal digits (at most 18 groups); any other id, and one
    // with few digits, is kept unchanged.
    record('vm_event_new', |||
      label_replace(
        label_replace(
          max without (%(ephemeral)s, description, resource_type, target) (
              azure_scheduled_events:vm_event_found{%(name)s!=""}
            or
              label_replace(azure_scheduled_events:vm_event_found{%(name)s=""}, "%(name)s", "$1", "%(instance)s", "(.*)")
          ),
          "event", "$1", "event_id", "(?s:(.*))"
        ),
        "event",
        "${1}${2}${3}${4}${5}${6}${7}${8}${9}${10}${11}${12}${13}${14}${15}${16}${17}${18}",
        "event_id",
        "(?i)[a-f-]*([0-9]+)[a-f-]+([0-9]+)[a-f-]+([0-9]+)[a-f-]+([0-9]+)[a-f-]*([0-9]*)[a-f-]*([0-9]*)[a-f-]*([0-9]*)[a-f-]*([0-9]*)[a-f-]*([0-9]*)[a-f-]*([0-9]*)[a-f-]*([0-9]*)[a-f-]*([0-9]*)[a-f-]*([0-9]*)[a-f-]*([0-9]*)[a-f-]*([0-9]*)[a-f-]*([0-9]*)[a-f-]*([0-9]*)[a-f-]*([0-9]*)[a-f-]*"
      )
      * on (%(vm)s) group_left (%(where)s)
      topk by (%(vm)s) (1,
          azure_scheduled_events_instance_info and on (%(vm)s) azure_scheduled_events:vm_event_found
        or on (%(vm)s)
          (azure_scheduled_events:vm_event and on (%(vm)s) azure_scheduled_events:vm_event_found) ^ 0
        or on (%(vm)s)
          group by (%(vm)s) (azure_scheduled_events:vm_event_found)
      )
    |||),

    // The last known events of VMs that do not list them any more.
    record('vm_event_unlisted', |||
      azure_scheduled_events:vm_event
      unless on (%(vmEventId)s)
      azure_scheduled_events_event_info{target="self"}
      unless on (%(vmEvent)s)
      azure_scheduled_events:vm_event_new
    |||),

    // Those whose exporter gets answers: the event is over.
    record('vm_event_over', |||
      azure_scheduled_events:vm_event_unlisted
      and on (%(vm)s)
      azure_scheduled_events_up == 1
    |||),

    // A failed scrape ends all series of a VM that an event takes down. Its event is kept until the exporter can be scraped
    // again, until another VM of the same event reports that it is over, or for an hour. If the target is gone, the VM is
    // deleted or its pod is replaced: then the event is kept for two and a half minutes.
    record('vm_event_kept', |||
      azure_scheduled_events:vm_event_unlisted > time() - %(keepGone)d
      or
        azure_scheduled_events:vm_event_unlisted > time() - %(keepDown)d
      and on (%(vm)s)
        up
    |||),

    // One series per VM and event; the value is the time when the VM was last seen to list it.
    record('vm_event', |||
      0 * (
          azure_scheduled_events:vm_event{resource_group!=""} and on (%(listed)s) azure_scheduled_events_event_info{target="self"}
        or
          azure_scheduled_events:vm_event_new
      ) + time()
      or
        azure_scheduled_events:vm_event_kept
      unless on (%(event)s)
        azure_scheduled_events:vm_event_over
    |||),

    // One series per event and spelling of its id.
    record('event_key', 'group by (%(eventId)s, event) (azure_scheduled_events:vm_event)'),

    // What identifies the event to Alertmanager is kept for as long as the event lasts: VMs that share it may write its id
    // in different case, and an exporter may not know its scale set at first.
    record('event_new', |||
      azure_scheduled_events:vm_event
      unless on (%(event)s, event_type)
      azure_scheduled_events:event_identity
    |||),
    record('event_identity', |||
      azure_scheduled_events:event_identity and on (%(event)s, event_type) azure_scheduled_events:vm_event
      or on (%(event)s)
      topk by (%(event)s) (1,
          group by (%(event)s, %(identity)s) (azure_scheduled_events:event_new{event_id!~".*[a-z].*"})
        or on (%(event)s)
          group by (%(event)s, %(identity)s) (azure_scheduled_events:event_new)
      )
    |||),

    // One series per event and fact.
    fact('not_before', 'not_before_timestamp_seconds', 'min'),
    fact('started', 'started_timestamp_seconds', 'min'),
    fact('duration', 'duration_seconds', 'max'),
    fact('resources', 'resources', 'max'),
    // The first NotBefore of the event.
    record('event_fact', |||
      azure_scheduled_events:event_fact{fact="announced"} and on (%(event)s) azure_scheduled_events:event_identity
      or on (%(event)s)
      azure_scheduled_events:event_fact{fact="not_before"}
    |||, { fact: 'announced' }),
    // The text of Azure is a label: of several, the one that most VMs report.
    record('event_fact', |||
      topk by (%(event)s) (1,
        sum by (%(event)s, description) (
          count by (%(eventId)s, description) (azure_scheduled_events_event_info{target="self", description!=""})
          * on (%(eventId)s) group_left (event)
          azure_scheduled_events:event_key
        )
      )
      or on (%(event)s)
        azure_scheduled_events:event_fact{fact="description"}
      and on (%(event)s)
        azure_scheduled_events:event_identity
    |||, { fact: 'description' }),
    // The number of VMs in Azure's document: not all of them may be scraped, or have an exporter.
    record('event_fact', |||
      max by (%(event)s) (
          azure_scheduled_events:event_fact{fact="resources"}
        or
          count by (%(event)s) (group by (%(event)s, %(name)s) (azure_scheduled_events:vm_event))
      )
    |||, { fact: 'vms' }),

    // The VMs whose event has started. A VM can go down before Prometheus sees Started: if NotBefore has passed and the VM
    // cannot be scraped, the event is assumed to have started. A recommendation does not do anything to the VM.
    // The value is the time of the event's start; negative if a start at NotBefore is assumed; 0 if it is unknown.
    record('vm_event_started', |||
      0 * (
        azure_scheduled_events:vm_event{event_status="Started", event_type!="SpotRebalanceRecommendation"}
        or
        (
            azure_scheduled_events:vm_event_kept{event_status!="Started", event_type!="SpotRebalanceRecommendation"}
          and on (%(vm)s)
            up == 0
          and on (%(event)s)
            azure_scheduled_events:event_fact{fact="not_before"} < time()
          unless on (%(event)s)
            azure_scheduled_events:vm_event_over
        )
      )
      + on (%(event)s) group_left ()
      (
          round(azure_scheduled_events:event_fact{fact="started"})
        or on (%(event)s)
          -azure_scheduled_events:event_fact{fact="not_before"}
        or on (%(event)s)
          0 * azure_scheduled_events:event_fact{fact="vms"}
      )
    |||),

    // The texts of alerts, as labels, because queries and calculations in templates are made for each alert at each
    // evaluation: `vms` is the name of its VM, or the number of its VMs; `about` is what Azure says about it.
    record('event_text', |||
      azure_scheduled_events:event_identity
      * on (%(event)s) group_left (vms)
      (
          label_replace(
            count_values by (%(event)s) ("vms", azure_scheduled_events:event_fact{fact="vms"} > 1), "vms", "$1 VMs", "vms", "(.*)"
          )
        or on (%(event)s)
          label_replace(
            group by (%(event)s, %(name)s) (
              azure_scheduled_events:vm_event unless on (%(event)s) azure_scheduled_events:event_fact{fact="vms"} > 1
            ),
            "vms", "$1", "%(name)s", "(.*)"
          )
      )
      * on (%(event)s) group_left (about)
      label_join(
        label_replace(
          (
              label_replace(
                count_values by (%(event)s) ("about", azure_scheduled_events:event_fact{fact="duration"}),
                "about", "Expected interruption: $1 s.", "about", "(.*)"
              )
            or on (%(event)s)
              label_replace(
                azure_scheduled_events:event_identity unless on (%(event)s) azure_scheduled_events:event_fact{fact="duration"},
                "about", "Expected interruption: unknown.", "", ""
              )
          )
          * on (%(event)s) group_left (description)
          (
              azure_scheduled_events:event_fact{fact="description"} ^ 0
            or on (%(event)s)
              azure_scheduled_events:event_identity
          ),
          "description", " Azure says: \"$1\"", "description", "(?s:(.+))"
        ),
        "about", "", "about", "description"
      )
    |||),

    // One series per event. The value is the time of its start if it has started, else NotBefore; negative if a start at
    // NotBefore is assumed; 0 if it is unknown.
    event(
      'Started',
      config.severities.started,
      'and on (%(event)s) azure_scheduled_events:vm_event_started',
      'max by (%(event)s) (azure_scheduled_events:vm_event_started)',
    ),
    event(
      'Scheduled',
      config.severities.announced,
      'and on (%(event)s) azure_scheduled_events:vm_event{event_status="Scheduled", event_type!="SpotRebalanceRecommendation"}'
      + ' unless on (%(event)s) azure_scheduled_events:event{event_status="Started"}',
      notBefore,
    ),
    event(
      'Advised',
      config.severities.advised,
      'unless on (%(event)s) azure_scheduled_events:event{event_status=~"Started|Scheduled"}',
      notBefore,
    ),
  ],

  // For the dashboards: the history of days, as series that exist only where something happened. The offset and the windows
  // of a minute are the group's interval.
  historyRules:: [
    // One series per VM and event: 2 if it has started, 1 if it has not. Includes events that appeared and disappeared
    // within the minute.
    record('vm_event_state', |||
      max without (event_status, event_source) (
        2 * last_over_time(azure_scheduled_events:vm_event_started[1m]) ^ 0
        or
        last_over_time(azure_scheduled_events:vm_event[1m]) ^ 0
      )
    |||),

    // The transition counters that are not 0, and once the 0 of an exporter that restarted.
    record('vm_transitions', |||
      azure_scheduled_events_transitions_total > 0
      or
      azure_scheduled_events_transitions_total and last_over_time(azure_scheduled_events:vm_transitions[6h]) > 0
    |||),

    // Their increase in the last minute, with the VM's place: unlike increase(), a whole number that includes the first
    // transition.
    record('vm_transitions:increase', |||
      (
        azure_scheduled_events:vm_transitions
        -
        (
          last_over_time(azure_scheduled_events:vm_transitions[6h] offset 1m)
          <= azure_scheduled_events:vm_transitions
          or
          0 * azure_scheduled_events:vm_transitions
        )
        > 0
      )
      * on (%(vm)s) group_left (%(where)s)
      (
          group by (%(vm)s, %(where)s) (azure_scheduled_events:vm)
        or on (%(vm)s)
          group by (%(vm)s) (azure_scheduled_events:vm_transitions)
      )
    |||),

    // One series per VM and event that is gone, once, with its outcome; the value is the time when it was last
    // seen to be listed. Counters and events are evaluated in different groups, so they are matched over several minutes.
    record('vm_event_gone', |||
      max without (event_status, event_source) (
        last_over_time(azure_scheduled_events:vm_event[4m])
        unless on (%(vmEventId)s)
        azure_scheduled_events:vm_event
      )
      unless on (%(vmEventId)s)
      last_over_time(azure_scheduled_events:vm_event_ended[8m])
    |||),
  ] + [
    record('vm_event_ended', |||
      azure_scheduled_events:vm_event_gone
      and on (%%(vm)s, event_type)
      last_over_time(azure_scheduled_events:vm_transitions:increase{transition="%s"}[4m])
      unless on (%%(vmEventId)s)
      azure_scheduled_events:vm_event_ended
    ||| % outcome, { transition: outcome })
    for outcome in ['completed', 'cancelled', 'vanished']
  ] + [
    // The pauses of the VMs that observed any.
    record('vm_pauses', 'azure_scheduled_events_observed_pause_seconds_count > 0'),
    record('vm_pause_seconds', 'azure_scheduled_events_observed_pause_seconds_sum > 0'),
  ],
}
