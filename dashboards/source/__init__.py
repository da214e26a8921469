"""What the dashboards show, and how; `dashboards.build` writes it down as JSON."""
