# Read by drain and uncordon: which node this VM is, and the marks that say for which events it was cordoned.

# The name under which the kubelet registers where it is not told otherwise.
node=${NODE_NAME:-$(hostname | tr '[:upper:]' '[:lower:]')}
marks=scheduled-events-exporter
mark=$marks/$(printf %s "$EVENT_ID" | tr '[:upper:]' '[:lower:]')

# One line each: "provider ID", "cordoned", "mark NAME".
template='{{with .spec.providerID}}provider {{.}}{{"\n"}}{{end}}{{if .spec.unschedulable}}cordoned{{"\n"}}{{end}}'
template=$template'{{range $name, $value := .metadata.annotations}}mark {{$name}}{{"\n"}}{{end}}'

ask() {
    kubectl --request-timeout=20s "$@"
}

# Set $seen to what the cluster says of the node, which has to be this VM.
look() {
    seen=$(ask get node "$node" -o "go-template=$template") || return 1
    provider=$(printf '%s\n' "$seen" | sed -n 's/^provider //p' | tr '[:upper:]' '[:lower:]')
    vm=$(printf %s "$INSTANCE_NAME" | tr '[:upper:]' '[:lower:]')
    # An instance of a scale set, set_3, is .../virtualMachineScaleSets/set/virtualMachines/3.
    case $provider in
    '' | */virtualmachines/"$vm" | */virtualmachinescalesets/"${vm%_*}"/virtualmachines/"${vm##*_}") ;;
    *)
        echo "node $node is $provider, and not the VM $INSTANCE_NAME; set NODE_NAME" >&2
        exit 1
        ;;
    esac
}

is_cordoned() {
    printf '%s\n' "$seen" | grep -qx cordoned
}

has_mark() {
    printf '%s\n' "$seen" | grep -qxF "mark $mark"
}

other_marks() {
    printf '%s\n' "$seen" | sed -n "s|^mark $marks/||p" | grep -vxF "${mark#*/}"
}

# Hooks of different events run side by side; only one at a time may look at the node and change it.
lock() {
    exec 9<"$here/node.sh"
    if command -v flock >/dev/null; then flock 9; fi
}

unlock() {
    exec 9<&-
}
