"""The running program beside an API server whose objects are as large as they may be."""

from pathlib import Path

from tests.end_to_end.program import eventually, resident
from tests.end_to_end.vm import event, one_vm
from tests.outputs.kubernetes.api import NODE, Api, served

_MOST_MIB = 160


def test_large_objects(tmp_path: Path) -> None:
    """A Node of nearly 1.5 MiB is marked, and drained by pages of nearly 4 MiB, in 160 MiB."""
    api = Api()
    api.page = 20
    api.node["spec"]["taints"] = [{"key": f"{n:05}", "effect": "NoSchedule"} for n in range(36_000)]
    owner = {"kind": "ReplicaSet", "name": "it", "controller": False}
    for number in range(100):
        api.pod(f"web-{number:03}", ownerReferences=[owner] * 3_000)
    account, folder = tmp_path / "account", tmp_path / "vm"
    account.mkdir()
    with served(api, account) as environ, one_vm(folder) as vm:
        drain = {"enabled": True}
        vm.configure(kubernetes={"node": NODE, "service_account": str(account), "drain": drain})
        with vm.running(**environ) as process:
            vm.tell(event(NotBefore=""))
            eventually(lambda: len(api.graces) == 100 and "cordoned" in api.annotations())
            assert resident(process.pid, "VmHWM") < _MOST_MIB
