# Sourced by drain and uncordon: the node of this VM, and the marks of the events for which it was cordoned.

# The name under which the kubelet registers by default.
node=${NODE_NAME:-$(hostname | tr '[:upper:]' '[:lower:]')}
marks=scheduled-events-exporter
mark=$marks/$(printf %s "$EVENT_ID" | tr '[:upper:]' '[:lower:]')
taint=$marks/pending
# Set by AKS when it drains a node itself.
aks_taint=remediator.kubernetes.azure.com/unschedulable

# One line each: "provider ID", "cordoned", "taint NAME", "mark NAME".
template='{{with .spec.providerID}}provider {{.}}{{"\n"}}{{end}}{{if .spec.unschedulable}}cordoned{{"\n"}}{{end}}'
template=$template'{{range .spec.taints}}taint {{.key}}{{"\n"}}{{end}}'
template=$template'{{range $name, $value := .metadata.annotations}}mark {{$name}}{{"\n"}}{{end}}'

ask() {
    kubectl --request-timeout=20s "$@"
}

# Set whether pods may be scheduled here. Uses a patch because `kubectl cordon` and `uncordon` exit with 0 on failure too.
set_unschedulable() {
    ask patch node "$node" --patch "{\"spec\": {\"unschedulable\": $1}}"
}

# Print a number as six base-36 digits, as in the computer names of scale sets: 150 is 000046.
base36() {
    number=$1
    digits=
    for _ in 1 2 3 4 5 6; do
        remainder=$((number % 36))
        number=$((number / 36))
        digits=$(printf %s 0123456789abcdefghijklmnopqrstuvwxyz | cut -c $((remainder + 1)))$digits
    done
    printf %s "$digits"
}

# Whether a node without a provider ID can be this VM: the VM set_150 of a scale set is the computer set000046,
# possibly with another prefix.
may_be_own() {
    case ${vm##*_} in
    "$vm" | '' | *[!0-9]*) return 0 ;;
    esac
    [ "$node" = "$vm" ] && return 0
    case $node in
    *"$(base36 "${vm##*_}")") return 0 ;;
    esac
    return 1
}

# Set $seen to the state of the node, which must be this VM.
look() {
    seen=$(ask get node "$node" -o "go-template=$template") || return 1
    provider=$(printf '%s\n' "$seen" | sed -n 's/^provider //p' | tr '[:upper:]' '[:lower:]')
    vm=$(printf %s "$INSTANCE_NAME" | tr '[:upper:]' '[:lower:]')
    # An instance of a uniform scale set, set_3, is .../virtualMachineScaleSets/set/virtualMachines/3; one of a flexible
    # scale set is named like any other VM.
    case $provider in
    */virtualmachines/"$vm" | */virtualmachinescalesets/"${vm%_*}"/virtualmachines/"${vm##*_}") return 0 ;;
    '') if may_be_own; then return 0; fi ;;
    esac
    echo "node $node is ${provider:-without a provider ID}, and not the VM $INSTANCE_NAME; set NODE_NAME" >&2
    exit 1
}

is_cordoned() {
    printf '%s\n' "$seen" | grep -qx cordoned
}

has_taint() {
    printf '%s\n' "$seen" | grep -qxF "taint $1"
}

has_mark() {
    printf '%s\n' "$seen" | grep -qxF "mark $mark"
}

other_marks() {
    printf '%s\n' "$seen" | sed -n "s|^mark $marks/||p" | grep -vxF "${mark#*/}"
}

# Record an event for `kubectl describe node`. A failure is ignored.
tell() {
    now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    ask create -f - <<EOF || echo "no Kubernetes Event could be written" >&2
{"apiVersion": "v1", "kind": "Event", "type": "$1", "reason": "$2", "count": 1,
 "metadata": {"namespace": "default", "generateName": "scheduled-events-"},
 "message": "$3: $EVENT_TYPE $EVENT_ID, not before ${EVENT_NOTBEFORE:-now}",
 "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "$node", "uid": "$node"},
 "source": {"component": "azure-scheduled-events-exporter", "host": "$node"},
 "firstTimestamp": "$now", "lastTimestamp": "$now"}
EOF
}

# Hooks of different events run in parallel; only one at a time may read and change the node.
lock() {
    exec 9<"$here/node.sh"
    if command -v flock >/dev/null; then flock 9; fi
}

unlock() {
    exec 9<&-
}
