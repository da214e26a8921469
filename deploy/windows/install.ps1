<#
.SYNOPSIS
Installs the exporter as a Windows service, or upgrades it. Run it as administrator, in a checkout of the project.
.PARAMETER WinSW
WinSW-x64.exe of version 2.12.0, from https://github.com/winsw/winsw/releases/tag/v2.12.0; its checksum is verified.
.PARAMETER Python
A Python of version 3.11 or newer that every account can run.
#>
param(
    [Parameter(Mandatory)] [string] $WinSW,
    [string] $Python = "python"
)
$ErrorActionPreference = "Stop"
$PSNativeCommandUseErrorActionPreference = $true

$name = "azure-scheduled-events-exporter"
$project = (Resolve-Path "$PSScriptRoot\..\..").Path
$program = Join-Path $env:ProgramFiles $name
$data = Join-Path $env:ProgramData $name
$service = Join-Path $program "$name.exe"

$sum = (Get-FileHash $WinSW -Algorithm SHA256).Hash
if ($sum -ne "05B82D46AD331CC16BDC00DE5C6332C1EF818DF8CEEFCD49C726553209B3A0DA") {
    throw "$WinSW is not WinSW-x64.exe 2.12.0"
}

if (Get-Service $name -ErrorAction SilentlyContinue) {
    Stop-Service $name
    & $service uninstall
}

& $Python -m venv (Join-Path $program "venv")
$pip = Join-Path $program "venv\Scripts\python.exe"
& $pip -m pip install --require-hashes --requirement (Join-Path $project "requirements\runtime.txt") `
    --requirement (Join-Path $project "requirements\build.txt")
& $pip -m pip install --no-deps --no-build-isolation --force-reinstall $project

# The state and the logs are the service's alone, but for administrators; what else lies here only they can change.
foreach ($part in "state", "logs") {
    $directory = New-Item -ItemType Directory -Force (Join-Path $data $part)
    icacls $directory /inheritance:r /grant "*S-1-5-32-544:(OI)(CI)F" "*S-1-5-18:(OI)(CI)F" "*S-1-5-19:(OI)(CI)M"
}
$configuration = Join-Path $data "exporter.yml"
if (-not (Test-Path $configuration)) {
    Copy-Item (Join-Path $project "deploy\exporter.yml") $configuration
}

Copy-Item $WinSW $service -Force
Copy-Item (Join-Path $PSScriptRoot "$name.xml") $program -Force
& $service install
Start-Service $name
