import json

import pytest

from exporter.errors import ImdsError, PollOutcome
from exporter.model.vm import VirtualMachine, decode_instance


def test_facts() -> None:
    """The facts come from ``compute``; numbers become text, and what is null, absent or odd is empty."""
    compute = {
        "name": "myset_3",
        "vmId": "02aab8a4-74ef-476e-8182-f6d2ba4166a6",
        "resourceGroupName": "group",
        "subscriptionId": "8d10da13",
        "location": "westeurope",
        "zone": None,
        "vmScaleSetName": "myset",
        "vmSize": ["odd"],
        "platformFaultDomain": 1,
        "osProfile": {"computerName": "myset000003"},
        "azEnvironment": "AzureChinaCloud",
        "tags": "a:b",
    }
    assert decode_instance(json.dumps({"compute": compute, "network": {}}).encode()) == VirtualMachine(
        name="myset_3",
        vm_id="02aab8a4-74ef-476e-8182-f6d2ba4166a6",
        resource_group="group",
        subscription_id="8d10da13",
        location="westeurope",
        scale_set="myset",
        fault_domain="1",
        computer_name="myset000003",
        environment="AzureChinaCloud",
        tags={"a": "b"},
    )


def test_tags() -> None:
    """Tags come from the list or, with versions of IMDS that have none, from the text; 50 are kept."""

    def tags(**given: object) -> dict[str, str]:
        return decode_instance(json.dumps({"compute": given}).encode()).tags

    listed = [{"name": "a", "value": "b;c:d"}, {"name": "n", "value": 1}, {}, 7]
    assert tags(tagsList=listed, tags="x:y") == {"a": "b;c:d", "n": "1"}
    assert tags(tags="owner:ops;url:http://x;;empty") == {"owner": "ops", "url": "http://x", "empty": ""}
    assert tags(tags=["odd"]) == {}
    assert len(tags(tags=";".join(f"{number}:x" for number in range(60)))) == 50


@pytest.mark.parametrize("body", [b"{}", b'{"compute": null}', b'\xef\xbb\xbf{"compute": {}}'])
def test_no_facts(body: bytes) -> None:
    """A document without facts about this VM gives empty facts."""
    assert decode_instance(body) == VirtualMachine()


def test_longest_name() -> None:
    """A name of more than 256 characters, which no document can contain, is refused."""
    body = json.dumps({"compute": {"name": "n" * 256}}).encode()
    assert decode_instance(body).name == "n" * 256
    with pytest.raises(ImdsError, match=r"^compute\.name has 257 characters; 256 are possible$") as caught:
        decode_instance(body.replace(b"n" * 256, b"n" * 257))
    assert caught.value.reason is PollOutcome.INVALID_DOCUMENT


@pytest.mark.parametrize(
    ("environment", "portal"),
    [
        ("", "https://portal.azure.com"),
        ("AzureChinaCloud", "https://portal.azure.cn"),
    ],
)
def test_the_page_in_the_portal(environment: str, portal: str) -> None:
    """It is that of the VM's cloud, quoted as a URL must be; an unknown cloud has none."""
    vm = VirtualMachine(resource_id="/subscriptions/s/resourceGroups/r (1)/x", environment=environment)
    assert vm.portal_url == f"{portal}/#resource/subscriptions/s/resourceGroups/r%20%281%29/x"
    assert VirtualMachine(environment=environment).portal_url == ""
    assert VirtualMachine(resource_id="/x", environment="AzureStack").portal_url == ""
