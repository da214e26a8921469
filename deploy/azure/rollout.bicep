// Publishes the exporter as a VM Application, and makes a scale set whose VMs have it, with terminate notifications on.
// README.md beside this file says how to use it. Nobody has compiled or deployed it yet: see "What was tried" there.

@description('Region of all resources.')
param location string = resourceGroup().location

@description('Azure Compute Gallery for the application; it is created if it does not exist.')
param galleryName string = 'scheduledEvents'

@description('Version of the VM Application: that of the package, three numbers.')
param version string

@description('What packageUri leads to.')
@allowed(['deb', 'tarball'])
param package string = 'deb'

@description('URL of the .deb or the tarball in a storage account, readable without further credentials, as with a SAS.')
@secure()
param packageUri string

@description('URL of exporter.yml in a storage account, in the same way. It must not contain secrets. Empty: the configuration on the VM is kept.')
@secure()
param configurationUri string = ''

@description('Name of the scale set.')
param scaleSetName string

@description('Size of its VMs.')
param vmSize string = 'Standard_D2s_v5'

@description('Number of its VMs.')
param instanceCount int = 2

@description('Resource ID of the subnet of its VMs.')
param subnetId string

@description('Public SSH key of the administrator.')
param sshPublicKey string

@description('How long Azure waits for an approval before it deletes a VM: 5 to 15 minutes.')
@allowed(['PT5M', 'PT10M', 'PT15M'])
param terminateNotice string = 'PT10M'

@description('Whether the Metadata Security Protocol is on, with the allowlist of allowlists/. Audit only logs what Enforce would refuse.')
@allowed(['Off', 'Audit', 'Enforce'])
param metadataSecurity string = 'Off'

var name = 'azure-scheduled-events-exporter'
var commands = {
  deb: {
    install: loadTextContent('vm-application/deb-install.sh')
    remove: loadTextContent('vm-application/deb-remove.sh')
  }
  tarball: {
    install: loadTextContent('vm-application/tarball-install.sh')
    remove: loadTextContent('vm-application/tarball-remove.sh')
  }
}
var allowlists = {
  deb: loadJsonContent('allowlists/package.json')
  tarball: loadJsonContent('allowlists/tarball.json')
}

resource gallery 'Microsoft.Compute/galleries@2024-03-03' = {
  name: galleryName
  location: location
  properties: {}
}

// The agent names the downloaded package after the application, and the commands expect this name.
resource application 'Microsoft.Compute/galleries/applications@2024-03-03' = {
  parent: gallery
  name: name
  location: location
  properties: {
    supportedOSType: 'Linux'
    description: 'Prometheus exporter for Azure Scheduled Events'
  }
}

resource applicationVersion 'Microsoft.Compute/galleries/applications/versions@2024-03-03' = {
  parent: application
  name: version
  location: location
  properties: {
    publishingProfile: {
      source: {
        mediaLink: packageUri
        defaultConfigurationLink: empty(configurationUri) ? null : configurationUri
      }
      manageActions: {
        install: commands[package].install
        update: commands[package].install
        remove: commands[package].remove
      }
      settings: {
        configFileName: 'exporter.yml'
        scriptBehaviorAfterReboot: 'Rerun'
      }
      targetRegions: [
        {
          name: location
        }
      ]
    }
  }
}

resource allowlist 'Microsoft.Compute/galleries/inVMAccessControlProfiles@2024-03-03' = if (metadataSecurity != 'Off') {
  parent: gallery
  name: name
  location: location
  properties: {
    osType: 'Linux'
    applicableHostEndpoint: 'IMDS'
  }
}

resource allowlistVersion 'Microsoft.Compute/galleries/inVMAccessControlProfiles/versions@2024-03-03' = if (metadataSecurity != 'Off') {
  parent: allowlist
  name: version
  location: location
  properties: {
    mode: metadataSecurity
    defaultAccess: allowlists[package].defaultAccess
    rules: allowlists[package].rules
    targetLocations: [
      {
        name: location
      }
    ]
  }
}

resource scaleSet 'Microsoft.Compute/virtualMachineScaleSets@2025-04-01' = {
  name: scaleSetName
  location: location
  sku: {
    name: vmSize
    capacity: instanceCount
  }
  properties: {
    orchestrationMode: 'Uniform'
    overprovision: false
    upgradePolicy: {
      mode: 'Manual'
    }
    virtualMachineProfile: {
      applicationProfile: {
        galleryApplications: [
          {
            packageReferenceId: applicationVersion.id
            treatFailureAsDeploymentFailure: true
          }
        ]
      }
      scheduledEventsProfile: {
        terminateNotificationProfile: {
          enable: true
          notBeforeTimeout: terminateNotice
        }
      }
      securityProfile: metadataSecurity == 'Off' ? null : {
        proxyAgentSettings: {
          enabled: true
          addProxyAgentExtension: true
          imds: {
            inVMAccessControlProfileReferenceId: allowlistVersion.id
          }
        }
      }
      osProfile: {
        computerNamePrefix: take(scaleSetName, 9)
        adminUsername: 'azureuser'
        linuxConfiguration: {
          disablePasswordAuthentication: true
          ssh: {
            publicKeys: [
              {
                path: '/home/azureuser/.ssh/authorized_keys'
                keyData: sshPublicKey
              }
            ]
          }
        }
      }
      storageProfile: {
        imageReference: {
          publisher: 'Canonical'
          offer: 'ubuntu-24_04-lts'
          sku: 'server'
          version: 'latest'
        }
        osDisk: {
          createOption: 'FromImage'
          managedDisk: {
            storageAccountType: 'Premium_LRS'
          }
        }
      }
      networkProfile: {
        networkInterfaceConfigurations: [
          {
            name: 'primary'
            properties: {
              primary: true
              ipConfigurations: [
                {
                  name: 'primary'
                  properties: {
                    subnet: {
                      id: subnetId
                    }
                  }
                }
              ]
            }
          }
        ]
      }
    }
  }
}

@description('For az vm application set, az vmss application set, and the policy.')
output applicationVersionId string = applicationVersion.id
