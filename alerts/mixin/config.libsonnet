// What users change, in one place. Override it in a mixin of your own:
//
//     (import 'azure-scheduled-events/mixin.libsonnet') + { _config+:: { jobs: ['vms'] } }
{
  _config+:: {
    // The jobs under which the exporters are scraped. The first is the default of the dashboards.
    jobs: ['azure-scheduled-events-exporter'],

    // Target labels that tell apart places with separate events. Alerts about events keep them.
    placeLabels: ['job', 'cluster', 'namespace'],
    // With placeLabels, the target label that identifies a VM.
    instanceLabel: 'instance',
    // The target label with the name of the VM, for texts. Targets without it are named by instanceLabel.
    nameLabel: 'vm',
    // Target labels that change when a pod is replaced.
    podLabels: ['container', 'endpoint', 'pod'],

    runbookBase: 'https://github.com/azure-scheduled-events-exporter/azure-scheduled-events-exporter/blob/main/alerts/runbooks/',

    // Severities of alerts about an event, by its type; `other` is for all types that are not listed.
    severities: {
      announced: { Freeze: 'info', Preempt: 'critical', Terminate: 'critical', other: 'warning' },
      started: { Freeze: 'info', other: 'critical' },
      overrun: { Freeze: 'warning', other: 'critical' },
      // For events that are neither Scheduled nor Started, and recommendations.
      advised: { Freeze: 'info', other: 'warning' },
      many: 'critical',
      concurrent: 'warning',
      pauses: 'info',
      // If a job has no targets: all of its VMs were Spot VMs, or not.
      noExporterSpot: 'info',
      noExporter: 'critical',
    },

    imminentSeconds: 300,
    overrunSeconds: 3600,
    // More events than this in one job are reported by one alert.
    many: 20,
    // An event whose NotBefore moves by more than this is reported again.
    rescheduledSeconds: 60,
    // How long an event is kept while its VM cannot be scraped, and after its target is gone, such as a replaced pod.
    keepDownSeconds: 3600,
    keepGoneSeconds: 150,
    clockSkewSeconds: 120,

    // Intervals of evaluation. A Preempt gives 30 seconds' notice, so events cannot wait for the usual minute.
    eventInterval: '5s',
    exporterInterval: '15s',
  },
}
