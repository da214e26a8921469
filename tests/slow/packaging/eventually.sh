# Repeats a command until it succeeds, for at most a minute.
eventually() {
    for _ in $(seq 120); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.5
    done
    "$@"
}
