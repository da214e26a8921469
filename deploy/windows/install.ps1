#Requires -Version 7.3
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Installs the exporter as a Windows service, or upgrades it. Run it as administrator, in what the command "assets" wrote, or in
a checkout of the project.
.DESCRIPTION
The running version is stopped only once the new one is installed. Only administrators, SYSTEM and the service can read
the configuration: secrets belong there, or into files beside it that url_file names. Do not write them into the XML file
of the wrapper, which every user can read.
.PARAMETER WinSW
WinSW-x64.exe of version 2.12.0, from https://github.com/winsw/winsw/releases/tag/v2.12.0; its checksum is verified.
.PARAMETER Archive
The .zip of a release, which needs no Python.
.PARAMETER Python
Without an archive, in a checkout: a Python of version 3.11 or newer that every account can run.
#>
[CmdletBinding(DefaultParameterSetName = "Checkout")]
param(
    [Parameter(Mandatory)] [string] $WinSW,
    [Parameter(Mandatory, ParameterSetName = "Release")] [string] $Archive,
    [Parameter(ParameterSetName = "Checkout")] [string] $Python = "python"
)
$ErrorActionPreference = "Stop"

$name = "azure-scheduled-events-exporter"
$project = (Resolve-Path "$PSScriptRoot\..\..").Path
$program = Join-Path $env:ProgramFiles $name
$data = Join-Path $env:ProgramData $name
$service = Join-Path $program "$name.exe"
$configuration = Join-Path $data "exporter.yml"
$administrators, $system, $localService = "*S-1-5-32-544", "*S-1-5-18", "*S-1-5-19"

# $ErrorActionPreference applies to native commands only since PowerShell 7.4.
function Invoke-Native([string] $Command) {
    & $Command @args
    if ($LASTEXITCODE -ne 0) { throw "$Command failed with status $LASTEXITCODE" }
}

# Every user may create files and directories in ProgramData. Whoever made one first could have written it, and may
# change its permissions.
function Assert-OwnedByAdministrators([string] $Path) {
    if (-not (Test-Path -LiteralPath $Path)) { return }
    $item = Get-Item -LiteralPath $Path -Force
    if ($item.Attributes -band [IO.FileAttributes]::ReparsePoint) { throw "$Path is a link; remove it" }
    $owner = (Get-Acl -LiteralPath $Path).GetOwner([Security.Principal.SecurityIdentifier]).Value
    if ($owner -notin "S-1-5-32-544", "S-1-5-18") {
        throw "$Path belongs to another user ($owner); look at its content, and remove it or run: takeown /a /f `"$Path`""
    }
}

function Set-Permissions([string] $Path, [string[]] $Rights) {
    Invoke-Native icacls $Path /setowner $administrators
    Invoke-Native icacls $Path /inheritance:r /grant:r @Rights
}

$sum = (Get-FileHash $WinSW -Algorithm SHA256).Hash
if ($sum -ne "05B82D46AD331CC16BDC00DE5C6332C1EF818DF8CEEFCD49C726553209B3A0DA") {
    throw "$WinSW is not WinSW-x64.exe 2.12.0"
}
foreach ($path in $data, $configuration, (Join-Path $data "state"), (Join-Path $data "logs")) {
    Assert-OwnedByAdministrators $path
}

# The service can read the configuration, and change the state and the logs; other users can do neither.
$full = "${administrators}:(OI)(CI)F", "${system}:(OI)(CI)F"
New-Item -ItemType Directory -Force $data | Out-Null
Set-Permissions $data ($full + "${localService}:(OI)(CI)RX")
foreach ($part in "state", "logs") {
    $directory = New-Item -ItemType Directory -Force (Join-Path $data $part)
    Set-Permissions $directory ($full + "${localService}:(OI)(CI)M")
}
if (-not (Test-Path -LiteralPath $configuration)) {
    Copy-Item (Join-Path $project "deploy\exporter.yml") $configuration
}
Set-Permissions $configuration @("${administrators}:F", "${system}:F", "${localService}:R")

# Each version has a directory of its own, so that the running one stays whole until the new one is complete.
$version = Join-Path $program ("version-" + (Get-Date -Format "yyyyMMddHHmmss"))
try {
    if ($Archive) {
        Expand-Archive -LiteralPath $Archive -DestinationPath $version
        $executable = (Get-Item (Join-Path $version "*\$name.exe")).FullName
    } else {
        $pip = Join-Path $version "Scripts\python.exe"
        $executable = Join-Path $version "Scripts\$name.exe"
        Invoke-Native $Python -m venv $version
        Invoke-Native $pip -m pip install --require-hashes --requirement (Join-Path $project "requirements\runtime.txt") `
            --requirement (Join-Path $project "requirements\build.txt")
        Invoke-Native $pip -m pip install --no-deps --no-build-isolation $project
    }
    Invoke-Native $executable check-config $configuration
} catch {
    Remove-Item -Recurse -Force $version -ErrorAction SilentlyContinue
    throw
}

if (Get-Service $name -ErrorAction SilentlyContinue) {
    Stop-Service $name
    Invoke-Native $service uninstall
}
Copy-Item $WinSW $service -Force
(Get-Content (Join-Path $PSScriptRoot "$name.xml") -Raw).Replace("PROGRAM", [IO.Path]::GetRelativePath($program, $executable)) |
    Set-Content (Join-Path $program "$name.xml") -Encoding UTF8
Invoke-Native $service install
Start-Service $name

# A command in a directory that is on every PATH: each version of the program has a directory of its own.
Set-Content (Join-Path $env:SystemRoot "$name.cmd") "@`"$executable`" %*" -Encoding ASCII
Get-ChildItem $program -Directory | Where-Object FullName -ne $version | Remove-Item -Recurse -Force
