#Requires -Version 7.3
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Stops and removes the service. Run it as administrator.
.PARAMETER Purge
Removes the configuration, the state and the logs, too.
#>
param([switch] $Purge)
$ErrorActionPreference = "Stop"
$PSNativeCommandUseErrorActionPreference = $true

$name = "azure-scheduled-events-exporter"
$program = Join-Path $env:ProgramFiles $name
Stop-Service $name
& (Join-Path $program "$name.exe") uninstall
Remove-Item -Recurse -Force $program
Remove-Item (Join-Path $env:SystemRoot "$name.cmd")
if ($Purge) {
    Remove-Item -Recurse -Force (Join-Path $env:ProgramData $name)
}
