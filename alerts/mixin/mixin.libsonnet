// A monitoring mixin, for mixtool and jsonnet 0.18 or newer. The rules are written as YAML, the dashboards as JSON.
{
  prometheusAlerts+:: {
    groups+:
      std.parseYaml(importstr '../events.rules.yml').groups
      + std.parseYaml(importstr '../exporter.rules.yml').groups,
  },
  grafanaDashboards+:: {
    'fleet.json': import '../../dashboards/fleet.json',
    'instance.json': import '../../dashboards/instance.json',
    'exporter.json': import '../../dashboards/exporter.json',
  },
}
