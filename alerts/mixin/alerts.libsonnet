// The alerting rules.
{
  local config = $._config,
  local severities = config.severities,
  local labels = (import 'labels.libsonnet')(config),
  local words = {
    event: labels.event,
    vm: labels.vm,
    place: labels.place,
    imminent: config.imminentSeconds,
    overrun: config.overrunSeconds,
    many: config.many,
    rescheduled: config.rescheduledSeconds,
    clockSkew: config.clockSkewSeconds,
  },

  // A template for the severity of an alert, by the type of the event.
  local byType(severities) =
    local listed = std.filter(function(type) type != 'other', std.objectFields(severities));
    if listed == [] then severities.other else
      '{{ ' + std.join('{{ else ', [
        'if eq $labels.event_type "%s" }}%s' % [type, severities[type]]
        for type in listed
      ]) + '{{ else }}%s{{ end }}' % severities.other,

  local minutes(seconds) =
    if seconds % 3600 == 0 then (if seconds == 3600 then 'an hour' else '%d hours' % (seconds / 3600))
    else '%d minutes' % (seconds / 60),

  // Templates are written on several lines, and joined with spaces.
  local text(lines) = std.stripChars(std.strReplace(lines, '\n', ' '), ' '),

  // Without `severity`, the series have it: a template would be evaluated for each of a thousand events.
  local alert(name, expr, severity, summary, description, labels={}, wait='') = {
    alert: name,
    expr: std.stripChars(expr % words, '\n'),
    [if wait != '' then 'for']: wait,
    labels: (if severity == null then {} else { severity: severity }) + labels,
    annotations: {
      summary: text(summary),
      description: text(description),
      runbook_url: config.runbookBase + name + '.md',
    },
  },

  // Absolute times: a message may be read long after it was sent.
  local time(seconds) = '{{ humanizeTimestamp %s }}' % seconds,
  local notBefore = '{{ if $value }}not before %s{{ else }}at an unknown time{{ end }}' % time('$value'),
  local since = '{{ if gt $value 0.0 }}since %s{{ else if $value }}probably since %s{{ else }}since an unknown time{{ end }}' % [
    time('$value'),
    time('(printf "%f" $value | reReplaceAll "^-" "")'),
  ],

  // What identifies an event in a query, and the values of that; for vmalert a label that is missing is not "".
  local of(labels) = std.join(', ', [label + '=%q' for label in labels]),
  local values(labels) = std.join(' ', ['(or $labels.%s "")' % label for label in labels]),
  local event = config.placeLabels + ['event'],

  // The only query of an alert about an event, for the names of several VMs, of which five are given: rules are evaluated
  // every five seconds, and there may be a thousand events. Even parsing templates takes its time.
  local about(when) = |||
    {{ $labels.event_type }} of {{ $labels.vms }}{{ if match " VMs$" $labels.vms -}}
    {{ $names := printf "group by (%(name)s) (azure_scheduled_events:vm_event{%(of)s})" %(values)s | query | sortByLabel "%(name)s" -}}
    {{ range $i, $vm := $names }}{{ if lt $i 5 }}{{ if $i }}, {{ else }} ({{ end }}{{ .Labels.%(name)s }}{{ end }}{{ end -}}
    {{ if or (gt (len $names) 5) (ne (printf "%%d VMs" (len $names)) $labels.vms) }}, ...{{ end }}){{ end }}, %(when)s.
    {{ if eq $labels.event_source "User" }}Requested by a user. {{ end }}{{ $labels.about }} Event {{ $labels.event_id }}.
  ||| % { name: config.nameLabel, of: of(event), values: values(event), when: when },

  // An alert must not change its labels while it fires: with other labels it would be another alert, and the first would be
  // reported as resolved. An empty label is a template, too, which costs more than leaving out a label in the expression:
  // here are those that the texts need.
  local noIdentity = { about: '', event: '', vms: '' },
  local events(status) = 'max without (event_status) (azure_scheduled_events:event{event_status%s})' % status,

  local vm = '{{ or $labels.%s $labels.%s }}' % [config.nameLabel, config.instanceLabel],

  eventAlerts:: [
    alert(
      'ScheduledEventPending',
      'azure_scheduled_events:event{event_status!="Started"}',
      null,
      '{{ $labels.event_type }} {{ toLower $labels.event_status }}: {{ $labels.vms }}, ' + notBefore,
      about(notBefore),
      noIdentity { event_status: '' },
    ),
    alert(
      'ScheduledEventImminent',
      |||
        max without (about, event, event_status) (
          azure_scheduled_events:event{event_status="Scheduled"}
          and on (%(event)s)
          azure_scheduled_events:event_fact{fact="not_before"} - time() <= %(imminent)d
        )
      |||,
      null,
      '{{ $labels.event_type }} within %s: {{ $labels.vms }}, %s' % [minutes(config.imminentSeconds), notBefore],
      'The {{ $labels.event_type }} of {{ $labels.vms }} can start at any moment, %s. Event {{ $labels.event_id }}.' % notBefore,
      { vms: '' },
    ),
    // One alert for each NotBefore other than the first, as Alertmanager sends no message when only a text changes.
    alert(
      'ScheduledEventRescheduled',
      |||
        %s
        and on (%%(event)s)
          abs(
            azure_scheduled_events:event_fact{fact="not_before"}
            - on (%%(event)s)
            azure_scheduled_events:event_fact{fact="announced"}
          ) > %%(rescheduled)d
      ||| % events('="Scheduled"'),
      null,
      '{{ $labels.event_type }} rescheduled: {{ $labels.vms }}, now ' + notBefore,
      about('rescheduled by Azure, now ' + notBefore),
      noIdentity { not_before: time('$value') },
    ),
    alert(
      'ScheduledEventStarted',
      events('="Started"'),
      null,
      '{{ $labels.event_type }} started: {{ $labels.vms }}, ' + since,
      about('in progress ' + since),
      noIdentity,
    ),
    // More severe than the event itself, because a started event may inhibit the VM's own alerts. Only for events that a VM
    // has listed in the last five minutes: for the others, ScheduledEventsExporterDown fires. A start that no exporter
    // observed has no time; such an event was Started an hour ago already.
    alert(
      'ScheduledEventOverrun',
      |||
        %s
        and on (%%(event)s) (
          time() - azure_scheduled_events:event_fact{fact="started"} > %%(overrun)d
          or on (%%(event)s)
          azure_scheduled_events:event{event_status="Started"} offset %%(overrun)ds
          unless on (%%(event)s)
          azure_scheduled_events:event_fact{fact="started"}
        )
        and on (%%(event)s)
          azure_scheduled_events:vm_event{event_status="Started"} > time() - 300
      ||| % events('="Started"'),
      byType(severities.overrun),
      '{{ $labels.event_type }} in progress for over %s: {{ $labels.vms }}, %s' % [minutes(config.overrunSeconds), since],
      about('in progress ' + since),
      noIdentity,
    ),

    // An event that affects many VMs counts once. Freezes do not take capacity away. VMs in no scale set do not stand in for
    // one another; those of which IMDS has not reported that yet count together.
    alert(
      'ScheduledEventsConcurrent',
      |||
        count by (%(place)s, resource_group, scale_set) (
          group by (%(place)s, resource_group, scale_set, event) (
            azure_scheduled_events:vm_event_started{event_type!="Freeze", scale_set!=""}
          )
          or
          group by (%(event)s) (
            azure_scheduled_events:vm_event_started{event_type!="Freeze", scale_set="", resource_group=""}
            unless on (%(vm)s)
            azure_scheduled_events_instance_info
          )
        ) >= 2
      |||,
      severities.concurrent,
      '{{ $value }} events are in progress at the same time in {{ or $labels.scale_set $labels.job }}',
      |||
        In progress in {{ or $labels.scale_set $labels.job }}:
        {{ range $i, $event := printf "azure_scheduled_events:vm_event_started{event_type!=\"Freeze\", %(selector)s, resource_group=%%q, scale_set=%%q}" %(values)s | query | sortByLabel "%(name)s" -}}
        {{ if lt $i 10 }}{{ if $i }}, {{ end }}{{ .Labels.%(name)s }} ({{ .Labels.event_type }}{{ if gt .Value 0.0 }} since %(since)s{{ end }}){{ else if eq $i 10 }}, ...{{ end }}{{ end }}.
      ||| % {
        name: config.nameLabel,
        since: time('.Value'),
        selector: of(config.placeLabels),
        values: values(config.placeLabels + ['resource_group', 'scale_set']),
      },
    ),

    // In a storm, one message for all events. With alertmanager.example.yml it inhibits the alerts about single events that
    // are not critical.
    alert(
      'ScheduledEventsMany',
      'count by (%(place)s) (azure_scheduled_events:event) > %(many)d',
      severities.many,
      '{{ $value }} events are announced or in progress in {{ $labels.job }}',
      |||
        In {{ $labels.job }}:
        {{ range $i, $type := printf "count by (event_type, event_status) (azure_scheduled_events:event{%(selector)s})" %(values)s | query | sortByLabel "event_type" -}}
        {{ if $i }}, {{ end }}{{ .Value }} {{ .Labels.event_type }} ({{ .Labels.event_status }}){{ end }}.
        {{- range $i, $event := printf "sort(bottomk(5, azure_scheduled_events:vm_event{%(selector)s} * 0 + on (%(on)s) group_left () bottomk(5, azure_scheduled_events:event_fact{fact=\"not_before\", %(selector)s})))" %(values)s %(values)s | query }}{{ if $i }},{{ else }} The first:{{ end }} {{ .Labels.%(name)s }} ({{ .Labels.event_type }}, not before %(notBefore)s)
        {{- end }}.
      ||| % {
        on: labels.event,
        name: config.nameLabel,
        notBefore: time('.Value'),
        selector: of(config.placeLabels),
        values: values(config.placeLabels),
      },
    ),
  ],

  exporterRules:: [
    // One series per VM and hook, at the evaluation after the hook failed; the offset is the interval of this group. Its
    // severity depends on the event's state at that time, and does not change.
    {
      local failed = |||
        azure_scheduled_events_hooks_total{outcome!="succeeded"} > 0
        unless
        azure_scheduled_events_hooks_total{outcome!="succeeded"}
        == last_over_time(azure_scheduled_events_hooks_total{outcome!="succeeded"}[15m] offset %s)
      ||| % config.exporterInterval,
      record: 'azure_scheduled_events:vm_hook_failed',
      expr: std.stripChars(|||
        label_replace(
          %(failed)s  and on (%(vm)s)
          azure_scheduled_events:vm_event{event_status!="Started", event_type!="Freeze"},
          "severity", "critical", "", ""
        )
        or ignoring (severity)
        label_replace(
          %(failed)s,
          "severity", "warning", "", ""
        )
      ||| % { failed: std.strReplace(failed, '\n', '\n  '), vm: labels.vm }, '\n'),
    },
    alert(
      'ScheduledEventHookFailed',
      'max_over_time(azure_scheduled_events:vm_hook_failed[15m])',
      '{{ $labels.severity }}',
      'Hook {{ $labels.hook }} {{ if eq $labels.outcome "timed_out" }}timed out{{ else }}failed{{ end }} on ' + vm,
      |||
        In the last 15 minutes the hook {{ $labels.hook }}
        {{ if eq $labels.outcome "timed_out" }}was killed at its timeout{{ else }}failed{{ end }} on %s
        {{- if eq $labels.severity "critical" }}, before the event started: the VM may not be prepared, and approvals that require the
        hook are held{{ end }}. It is not run again.
      ||| % vm,
    ),
    // A whole number, and nothing that happened before: increase() extrapolates, and misses a pause before the first scrape.
    alert(
      'ScheduledEventUnannouncedPause',
      |||
        last_over_time(azure_scheduled_events_unannounced_pauses_total[3m])
        - (
            last_over_time(azure_scheduled_events_unannounced_pauses_total[1h] offset 15m)
            <= last_over_time(azure_scheduled_events_unannounced_pauses_total[3m])
          or
            0 * last_over_time(azure_scheduled_events_unannounced_pauses_total[3m])
        ) > 0
      |||,
      severities.pauses,
      vm + ' was paused without an event',
      |||
        In the last 15 minutes %s was paused {{ if eq $value 1.0 }}once{{ else }}{{ $value }} times{{ end }} for a second or
        more while no event was in progress. The log of its exporter has times and durations.
      ||| % vm,
    ),
    // With last_over_time(), a single failed scrape does not restart the wait.
    alert(
      'ScheduledEventsBlind',
      'last_over_time(azure_scheduled_events_up[3m]) == 0',
      'critical',
      'Scheduled Events cannot be read on ' + vm,
      |||
        The exporter on %s has had no valid answer from Azure's metadata service for 5 minutes. Reboots, evictions and
        deletions of this VM would come unannounced.
      ||| % vm,
      wait='5m',
    ),
    // Without a successful poll since the start, the time since the configuration was loaded is used. Both are times of the
    // VM's clock: if it is slow, the last success seems to be old, but grows.
    alert(
      'ScheduledEventsPollStale',
      |||
        time() - (
            azure_scheduled_events_last_success_timestamp_seconds
          or
            azure_scheduled_events_config_last_reload_success_timestamp_seconds
        ) > 600
        unless
        azure_scheduled_events_last_success_timestamp_seconds
        > min_over_time(azure_scheduled_events_last_success_timestamp_seconds[5m])
      |||,
      'critical',
      'Scheduled Events were last read {{ humanizeDuration $value }} ago on ' + vm,
      |||
        The exporter on %s can be scraped, but its last valid answer from Azure's metadata service is {{ humanizeDuration
        $value }} old. Reboots, evictions and deletions of this VM would come unannounced.
      ||| % vm,
      // A VM that resumes after a long stop may be scraped before it polls.
      wait='30s',
    ),
    alert(
      'ScheduledEventsClockSkew',
      |||
        abs(
          timestamp(azure_scheduled_events_last_success_timestamp_seconds)
          - azure_scheduled_events_last_success_timestamp_seconds
        ) > %(clockSkew)d
        and
        azure_scheduled_events_last_success_timestamp_seconds
        > azure_scheduled_events_last_success_timestamp_seconds offset 1m
      |||,
      'warning',
      'The clock of %s is off by {{ humanizeDuration $value }}' % vm,
      |||
        The exporter on %s reads Scheduled Events, but the clocks of the VM and of Prometheus differ by {{ humanizeDuration
        $value }}. The time left until events, notices and delays of approvals are wrong by as much. Check the VM's time
        synchronization.
      ||| % vm,
      wait='5m',
    ),
    alert(
      'ScheduledEventsExporterDown',
      'up == 0 and on (job) azure_scheduled_events:job',
      'critical',
      'The Scheduled Events exporter on %s cannot be scraped' % vm,
      |||
        Prometheus has not been able to scrape {{ $labels.%s }} for 5 minutes. Reboots, evictions and deletions of %s would
        come unannounced, unless the exporter still sends messages itself.
      ||| % [config.instanceLabel, vm],
      wait='5m',
    ),
    // The exporter retries at least every 5 minutes, so a failing target fails at least once in 10 minutes. The second half
    // is needed because increase() misses a counter that is not 0 at its first scrape.
    alert(
      'ScheduledEventNotificationsFailing',
      |||
        last_over_time(azure_scheduled_events_notifications_pending[3m]) > 0
        and ignoring (outcome)
        (
            increase(azure_scheduled_events_notifications_total{outcome="failed"}[10m]) > 0
          or
            azure_scheduled_events_notifications_total{outcome="failed"} > 0
            unless last_over_time(azure_scheduled_events_notifications_total{outcome="failed"}[1h] offset 10m)
        )
      |||,
      'warning',
      'Messages to {{ $labels.target }} cannot be delivered from ' + vm,
      |||
        {{ $value }} message(s) of the exporter on %s to the target {{ $labels.target }} are pending; deliveries have failed
        for 10 minutes. They are retried for notifications.retry_for, a day by default.
      ||| % vm,
      wait='10m',
    ),
    alert(
      'ScheduledEventMessagesLost',
      |||
        increase(azure_scheduled_events_notifications_total{outcome=~"expired|refused"}[15m]) > 0
        or
        azure_scheduled_events_notifications_total{outcome=~"expired|refused"} > 0
        unless last_over_time(azure_scheduled_events_notifications_total{outcome=~"expired|refused"}[1h] offset 15m)
      |||,
      'warning',
      'Messages to {{ $labels.target }} were lost on ' + vm,
      |||
        In the last 15 minutes the exporter on %s discarded messages to the target {{ $labels.target }}:
        {{ if eq $labels.outcome "refused" }}the target refused them.
        {{- else }}the target failed for all of notifications.retry_for, a day by default.{{ end }}
      ||| % vm,
    ),
    alert(
      'ScheduledEventApprovalsFailing',
      |||
        increase(azure_scheduled_events_approvals_total{outcome="failed"}[15m]) > 0
        or
        azure_scheduled_events_approvals_total{outcome="failed"} > 0
        unless last_over_time(azure_scheduled_events_approvals_total{outcome="failed"}[1h] offset 15m)
      |||,
      'warning',
      'An approval by %s failed' % vm,
      |||
        In the last 15 minutes the exporter on %s failed to approve an event by the rule {{ $labels.rule }}. Unless another
        VM approves it, the event starts at its NotBefore.
      ||| % vm,
    ),
    alert(
      'ScheduledEventsReloadFailed',
      'last_over_time(azure_scheduled_events_config_last_reload_successful[3m]) == 0',
      'warning',
      'The exporter on %s could not load its new configuration' % vm,
      |||
        The last reload of the exporter on %s failed. The previous configuration stays in use, but a restart would fail.
      ||| % vm,
      wait='5m',
    ),
    // ScheduledEventsBlind covers imds_failing.
    alert(
      'ScheduledEventsDegraded',
      'last_over_time(azure_scheduled_events_degraded{reason!="imds_failing"}[3m]) == 1',
      'warning',
      'The exporter on %s is degraded: {{ $labels.reason }}' % vm,
      |||
        The exporter on %s has been degraded for 10 minutes: {{ $labels.reason }}. Its status page and /api/v1/status have
        the details.
      ||| % vm,
      wait='10m',
    ),
    // A job of Spot VMs may be scaled to zero.
    alert(
      'ScheduledEventsNoExporter',
      |||
        (
          azure_scheduled_events:job * on (job) group_left (priority) azure_scheduled_events:spot_job
          or on (job)
          azure_scheduled_events:job
        )
        unless on (job)
        up
      |||,
      '{{ if eq $labels.priority "Spot" }}%s{{ else }}%s{{ end }}' % [severities.noExporterSpot, severities.noExporter],
      'No Scheduled Events exporter is scraped as {{ $labels.job }}',
      |||
        For 5 minutes Prometheus has had no target of the job {{ $labels.job }}:
        {{ if eq $labels.priority "Spot" }}its Spot VMs are all gone, by eviction or because the scale set was scaled to zero.
        {{- else }}the job has another name, or discovery finds no VM. Reboots, evictions and deletions would come unannounced.{{ end }}
      |||,
      { priority: '' },
      wait='5m',
    ),
  ],

  inhibitionRules:: [
    // Alerts about events are one per event, without the labels of a VM, which Alertmanager needs to match the alerts that a
    // started event explains. This one has the labels of the exporter's target, such as instance, vm and node.
    alert(
      'ScheduledEventInhibitor',
      'max without (event, event_status, event_source, scale_set, zone, resource_group) (azure_scheduled_events:vm_event_started)',
      'none',
      '{{ $labels.event_type }} explains alerts about ' + vm,
      |||
        While event {{ $labels.event_id }} ({{ $labels.event_type }}) is in progress, Alertmanager inhibits the alerts about
        %s that it explains. This alert should not be sent to anyone.
      ||| % vm,
    ),
  ],
}
