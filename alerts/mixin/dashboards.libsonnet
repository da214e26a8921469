// The dashboards are written in Python, with the same configuration (`make dashboards`), because no library for jsonnet has
// all that they use. Here they are strings, in which other jobs replace the checked-in ones.
{
  local job = (import 'config.libsonnet')._config.jobs[0],
  local adapt(text) = std.parseJson(std.strReplace(text, '"%s"' % job, '"%s"' % $._config.jobs[0])),
  grafanaDashboards+:: {
    'fleet.json': adapt(importstr '../../dashboards/fleet.json'),
    'instance.json': adapt(importstr '../../dashboards/instance.json'),
    'exporter.json': adapt(importstr '../../dashboards/exporter.json'),
  },
}
