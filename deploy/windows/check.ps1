<#
.SYNOPSIS
Installs, tries, and removes the service; what the workflows on GitHub run, with a checkout or the .zip of a release.
#>
param([string] $Archive)
$ErrorActionPreference = "Stop"
$PSNativeCommandUseErrorActionPreference = $true

$name = "azure-scheduled-events-exporter"
$winsw = Join-Path ([IO.Path]::GetTempPath()) "WinSW-x64.exe"
Invoke-WebRequest https://github.com/winsw/winsw/releases/download/v2.12.0/WinSW-x64.exe -OutFile $winsw
$source = $Archive ? @{ Archive = $Archive } : @{ Python = (Get-Command python).Source }

function Wait-Healthy {
    foreach ($attempt in 1..60) {
        try {
            return (Invoke-WebRequest http://127.0.0.1:9843/-/healthy -TimeoutSec 5).StatusCode
        } catch {
            Start-Sleep 1
        }
    }
    Get-ChildItem (Join-Path $env:ProgramData "$name\logs") | Get-Content
    throw "the service does not answer"
}

# The second time it is an upgrade.
foreach ($attempt in 1..2) {
    & "$PSScriptRoot\install.ps1" -WinSW $winsw @source
    Wait-Healthy
}
# The command is on the PATH.
& $name --version
& $name check-config (Join-Path $env:ProgramData "$name\exporter.yml")
if (-not (Test-Path (Join-Path $env:ProgramData "$name\state\state.db"))) { throw "there is no state" }
Stop-Service $name
if ((Get-Service $name).Status -ne "Stopped") { throw "it does not stop" }
Start-Service $name
Wait-Healthy
& "$PSScriptRoot\uninstall.ps1" -Purge
if (Get-Service $name -ErrorAction SilentlyContinue) { throw "it is still a service" }
if (Test-Path (Join-Path $env:ProgramData $name)) { throw "something is left" }
if (Test-Path (Join-Path $env:SystemRoot "$name.cmd")) { throw "the command is left" }
