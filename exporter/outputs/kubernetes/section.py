"""What is said about the section `kubernetes` of the configuration."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from exporter.config import Config
from exporter.config.checks import Fault, without_transitions
from exporter.config.kubernetes import Kubernetes
from exporter.config.yamlfile import YamlFile
from exporter.model.views import NodeView
from exporter.outputs.output import Diagnosis, Level, Section


class KubernetesSection(Section):
    def faults(self, config: Config, file: YamlFile) -> Iterator[Fault]:
        drain = config.kubernetes.drain
        yield from without_transitions(("kubernetes", "drain", "match"), drain.match)
        if 0 < drain.before <= drain.delete_before:
            fault = "is not shorter than before, so that no budget is respected; make it shorter"
            yield ("kubernetes", "drain", "delete_before"), fault

    def notes(self, config: Config, environ: Mapping[str, str], node: NodeView | None) -> Iterator[Diagnosis]:
        """Name the commands that remove the marks of a Node that no exporter can remove."""
        settings = config.kubernetes
        name = settings.node_name(environ)
        if node is not None:
            return
        if not name:
            if settings == Kubernetes() and "KUBERNETES_SERVICE_HOST" not in environ:
                return
            text = "no Node is configured; set kubernetes.node or NODE_NAME for its conditions and drain"
        elif (
            settings.conditions or settings.drain.enabled or Path(settings.service_account, "token").exists()
        ):
            return
        else:
            text = f"nothing is wanted of the Node {name}, and there is no service account to change it with"
        # Imported late: the exporter needs it only where there is a Node.
        from exporter.outputs.kubernetes.desired import unmarking

        remedy = "if an earlier configuration had it marked, remove that with"
        yield Diagnosis(Level.NOTE, "kubernetes", f"{text}; {remedy}:", tuple(unmarking(name or "NAME")))
