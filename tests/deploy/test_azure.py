"""The files of `deploy/azure`: allowlists, commands of the VM Application, and what no compiler reads."""

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.imds.client import EVENTS_PATH, INSTANCE_PATH

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
AZURE = DEPLOY / "azure"
NAME = "azure-scheduled-events-exporter"
ALLOWLISTS = sorted((AZURE / "allowlists").glob("*.json"))
PYTHON = re.findall(r"library/python:(3\.\d+)-slim", (DEPLOY / "docker" / "Dockerfile").read_text())[0]


def is_allowed(profile: dict[str, Any], path: str, claims: dict[str, str]) -> bool:
    """Return what the Guest Proxy Agent decides in the mode Enforce.

    As its source does it, in authorization_rules.rs and key.rs.
    """
    rules = profile["rules"]
    privileges = {each["name"]: each for each in rules["privileges"]}
    identities = {each["name"]: each for each in rules["identities"]}
    is_named = False
    for assignment in rules["roleAssignments"]:
        (role,) = (role for role in rules["roles"] if role["name"] == assignment["role"])
        if not any(path.startswith(privileges[name]["path"]) for name in role["privileges"]):
            continue
        is_named = True
        for identity in (identities[name] for name in assignment["identities"]):
            if all(claims[key] == value for key, value in identity.items() if key != "name"):
                return True
    return not is_named and profile["defaultAccess"] == "Allow"


def installed(kind: str) -> dict[str, str]:
    """Return the claims of the exporter's process, from the files that install it."""
    unit = (DEPLOY / "systemd" / f"{NAME}.service").read_text()
    links = {
        one["dst"]: one["src"]
        for one in yaml.safe_load((DEPLOY / "packages" / "nfpm.yaml").read_text())["contents"]
        if one.get("type") == "symlink"
    }
    match kind:
        case "package":
            assert "useradd --system" in (DEPLOY / "packages" / "preinstall.sh").read_text()
            executable = links[f"/usr/bin/{NAME}"].replace("../", "/usr/")
        case "tarball":
            (executable,) = re.findall(r"^ExecStart=(\S+) run", unit, re.MULTILINE)
        case "container":
            executable = f"/usr/local/bin/python{PYTHON}"
        case _:
            assert "<user>LocalService</user>" in (DEPLOY / "windows" / f"{NAME}.xml").read_text()
            executable = rf"C:\Program Files\{NAME}\version-20260101000000\{NAME}-0.1.0\{NAME}.exe"
            return {"userName": "LOCAL SERVICE", "exePath": executable, "processName": f"{NAME}.exe"}
    # DynamicUser= names the user after the unit.
    return {"userName": NAME, "exePath": executable, "processName": Path(executable).name}


@pytest.mark.parametrize("file", ALLOWLISTS, ids=lambda file: file.stem)
def test_an_allowlist_lets_the_exporter_pass_and_nobody_else(file: Path) -> None:
    """The installed program may ask for what it asks for; another user or program may not."""
    profile = json.loads(file.read_text())
    assert (profile["mode"], profile["defaultAccess"]) == ("Audit", "Deny")
    assert {one["path"] for one in profile["rules"]["privileges"]} == {EVENTS_PATH, INSTANCE_PATH}
    claims = installed(file.stem)
    others = (claims | {"userName": "www-data"}, claims | {"exePath": "/bin/curl", "processName": "curl"})
    for path in (EVENTS_PATH, INSTANCE_PATH):
        assert is_allowed(profile, path, claims)
        assert not any(is_allowed(profile, path, other) for other in others)
    assert not is_allowed(profile, "/metadata/identity/oauth2/token", claims)


def test_each_kind_of_installation_has_an_allowlist() -> None:
    """There is one for the packages, the tarball, the container and Windows, and the page lists each."""
    assert {file.stem for file in ALLOWLISTS} == {"package", "tarball", "container", "windows"}
    page = (AZURE / "README.md").read_text()
    assert all(f"(allowlists/{file.name})" in page for file in ALLOWLISTS)
    assert "--uid 65532" in page
    assert "\nUSER 65532:65532\n" in (DEPLOY / "docker" / "Dockerfile").read_text()


APT = """#!/bin/sh
case "$*" in
install*) test -e "./{name}.deb" && mkdir -p {root}/etc/{name} && touch {root}/etc/{name}/exporter.yml ;;
remove*) ;;
esac
"""
# A service that refuses a bad configuration.
SYSTEMCTL = """#!/bin/sh
echo "$*" >> {root}/calls
case $1 in restart | reload-or-restart) ! grep no_such_key {root}/etc/{name}/exporter.yml ;; esac
"""
# This machine does not have the group.
INSTALL = """#!/bin/sh
case "$*" in "-m 0640 -g {name} "*) shift 4 && set -- -m 0640 "$@" ;; esac
exec /usr/bin/install "$@"
"""
PROGRAM = """#!/bin/sh
test "$1" = assets && mkdir "$2" && cp -r {deploy} "$2/"
"""


class Agent:
    """Runs a command as the agent of a VM does, in a directory that stands for the root of the VM."""

    def __init__(self, root: Path, package: Path) -> None:
        self.root = root
        self.package = package
        self.programs = root / "programs"
        self.programs.mkdir()
        for directory in ("etc/systemd/system", "opt"):
            (root / directory).mkdir(parents=True)
        for name, text in (
            ("apt-get", APT),
            ("systemctl", SYSTEMCTL),
            ("dpkg", "#!/bin/sh\n"),
            ("install", INSTALL),
            ("getent", "#!/bin/sh\nexit 2\n"),
            ("useradd", "#!/bin/sh\n"),
            ("restorecon", "#!/bin/sh\n"),
        ):
            (self.programs / name).write_text(text.format(root=root, name=NAME))
            (self.programs / name).chmod(0o755)

    def run(self, script: str, config: str | None = None, version: str = "0.1.0") -> tuple[int, str]:
        """Return exit status and error output; each version has a directory, which is there the next time."""
        directory = self.root / "waagent" / version
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.package, directory / NAME)
        if config is not None:
            (directory / "exporter.yml").write_text(config)
        text = (AZURE / "vm-application" / script).read_text()
        for path in ("/etc/", "/opt/", "/usr/lib/systemd/"):
            text = re.sub(rf"(?<![\w/}}]){path}", f"{self.root}{path}", text)
        done = subprocess.run(
            ["sh", "-c", text],
            cwd=directory,
            env={"PATH": f"{self.programs}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stderr

    @property
    def config(self) -> str:
        return (self.root / "etc" / NAME / "exporter.yml").read_text()


@pytest.fixture
def agent(tmp_path: Path) -> Callable[[str], Agent]:
    def make(kind: str) -> Agent:
        package = tmp_path / "package"
        if kind == "deb":
            package.write_text("a package")
        else:
            program = tmp_path / NAME
            program.write_text(PROGRAM.format(deploy=DEPLOY))
            program.chmod(0o755)
            with tarfile.open(package, "w:gz") as archive:
                archive.add(program, f"{NAME}-0.1.0.linux-amd64/{NAME}")
        root = tmp_path / "root"
        root.mkdir()
        return Agent(root, package)

    return make


@pytest.mark.parametrize("kind", ["deb", "tarball"])
def test_commands_of_the_vm_application(agent: Callable[[str], Agent], kind: str) -> None:
    """Each may run twice; the configuration comes along, survives all, and a refused one changes nothing."""
    vm = agent(kind)
    install, remove = f"{kind}-install.sh", f"{kind}-remove.sh"
    assert vm.run(remove) == (0, "")
    for _ in range(2):
        assert vm.run(install) == (0, "")
    good = "metrics: {resources: true}\n"
    for _ in range(2):
        assert vm.run(install, good, "0.2.0") == (0, "")
        assert vm.config == good
        assert (vm.root / "etc" / NAME / "exporter.yml").stat().st_mode & 0o777 == 0o640
    status, said = vm.run(install, "no_such_key: 1\n", "0.3.0")
    assert status == 1
    assert f"journalctl --unit {NAME}" in said
    assert vm.config == good
    for _ in range(2):
        assert vm.run(remove) == (0, "")
    assert vm.config == good
    left = {str(path.relative_to(vm.root)) for path in vm.root.rglob("*") if path.is_file()}
    assert not [path for path in left if path.startswith("opt/") or path.endswith((".before", ".service"))]


def test_the_tarball_is_in_place_once_its_command_ends(agent: Callable[[str], Agent]) -> None:
    """Program and unit fit together, the service was started, and another kind of installation stays."""
    vm = agent("tarball")
    assert vm.run("tarball-install.sh") == (0, "")
    unit = (vm.root / "etc" / "systemd" / "system" / f"{NAME}.service").read_text()
    (program,) = re.findall(r"^ExecStart=/(\S+) run", unit, re.MULTILINE)
    assert (vm.root / program).stat().st_mode & 0o111
    calls = (vm.root / "calls").read_text().splitlines()
    assert calls == ["daemon-reload", f"enable {NAME}", f"restart {NAME}"]
    (vm.root / "opt" / "scheduled-events" / "pyvenv.cfg").touch()
    status, said = vm.run("tarball-install.sh")
    assert status == 1
    assert "installed in another way" in said


@pytest.mark.parametrize("file", sorted((AZURE / "vm-application").iterdir()), ids=lambda file: file.name)
def test_a_command_fits_into_the_resource(file: Path) -> None:
    """Azure takes up to 4096 characters."""
    assert len(file.read_text()) <= 4096


def test_the_bicep_file_is_consistent() -> None:
    """Brackets match, files exist, each name is declared and used, and terminate notifications are on."""
    text = (AZURE / "rollout.bicep").read_text()
    for file in re.findall(r"load(?:Text|Json)Content\('([^']+)'\)", text):
        assert (AZURE / file).is_file()
    code = re.sub(r"'[^'\n]*'|//.*", "''", text)
    open_brackets = []
    for character in re.findall(r"[][(){}]", code):
        if character in "([{":
            open_brackets.append(character)
        else:
            assert open_brackets.pop() + character in ("()", "[]", "{}")
    assert open_brackets == []
    declared = re.findall(r"^(?:param|var|resource) (\w+) ", code, re.MULTILINE)
    assert len(set(declared)) == len(declared)
    values = re.sub(r"(?m)^(?:param|var|resource|output) \w+|^\s*\w+:", "", code)
    used = set(re.findall(r"(?<![.\w@])[a-zA-Z]\w*", values))
    assert set(declared) - {"scaleSet"} <= used
    words = "string int null true false if empty take resourceGroup loadTextContent loadJsonContent"
    assert used - set(declared) <= set(words.split())
    terminate = (
        r"scheduledEventsProfile: \{\s+terminateNotificationProfile: \{\s+enable: true\s+notBeforeTimeout:"
    )
    assert re.search(terminate, text)
    names = re.findall(r"^param (\w+)", text, re.MULTILINE)
    page = (AZURE / "README.md").read_text()
    required = [name for name in names if not re.search(rf"^param {name} \w+ =", text, re.MULTILINE)]
    assert all(f"{name}=" in page for name in required)


def test_the_policy_deploys_what_it_looks_for() -> None:
    """The condition names the property that the deployment sets, and every parameter is passed on."""
    policy = json.loads((AZURE / "policy.json").read_text())
    details = policy["policyRule"]["then"]["details"]
    deployment = details["deployment"]["properties"]
    template = deployment["template"]
    assert set(deployment["parameters"]) == set(template["parameters"])
    (resource,) = template["resources"]
    assert resource["type"] == details["type"]
    (application,) = resource["properties"]["applicationProfile"]["galleryApplications"]
    alias = f"{details['type']}/applicationProfile.galleryApplications[*]"
    where = details["existenceCondition"]["count"]["where"]
    assert where["field"].removeprefix(f"{alias}.") in application
    for name in re.findall(r"parameters\('(\w+)'\)", json.dumps(policy["policyRule"]["then"])):
        assert name in policy["parameters"] | template["parameters"]
