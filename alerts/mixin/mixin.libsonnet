// A monitoring mixin, for mixtool and for jsonnet: prometheusRules, prometheusAlerts and grafanaDashboards.
(import 'config.libsonnet') +
(import 'recording.libsonnet') +
(import 'alerts.libsonnet') +
(import 'dashboards.libsonnet') +
{
  local group(name, interval, rules) = { name: 'azure-scheduled-events' + name, interval: interval, rules: rules },
  // Alerts about events read what is recorded just before in the same group: in a group of their own, they would read it
  // up to an evaluation later.
  prometheusAlerts+:: {
    groups+: [
      group('-vms', $._config.exporterInterval, $.vmRules),
      group('', $._config.eventInterval, $.eventRules + $.eventAlerts),
      group('-exporters', $._config.exporterInterval, $.exporterRules),
    ],
  },
  prometheusRules+:: {
    groups+: [group('-history', '1m', $.historyRules)],
  },
  // Only with alertmanager.example.yml.
  inhibitionAlerts+:: {
    groups+: [group('-inhibition', $._config.eventInterval, $.inhibitionRules)],
  },
}
