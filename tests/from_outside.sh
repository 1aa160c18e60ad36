# For tests of a program from outside (sourced): a folder $dir, which is gone at the end, and checks
# of what commands say. A check that fails says so, shows what the last command said, and sets
# $failed, with which the test exits.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0

wrong() {
    echo "FAILED: $*"
    sed 's/^/    out: /' "$dir/out"
    sed 's/^/    err: /' "$dir/err"
    failed=1
}

# try STATUS COMMAND...: its output goes to $dir/out and $dir/err.
try() {
    local wanted=$1 status
    shift
    "$@" >"$dir/out" 2>"$dir/err" </dev/null
    status=$?
    [ $status = "$wanted" ] || wrong "status $status instead of $wanted: $*"
}
out_has() { grep -qE -- "$1" "$dir/out" || wrong "no \"$1\" on stdout"; }
err_has() { grep -qE -- "$1" "$dir/err" || wrong "no \"$1\" on stderr"; }
err_lines() { [ "$(wc -l <"$dir/err")" = "$1" ] || wrong "not $1 line(s) on stderr"; }

# refused TEXT COMMAND...: wrong use: status 2, and one line on stderr, nothing on stdout.
refused() {
    local text=$1
    shift
    try 2 "$@"
    [ "$(wc -l <"$dir/err")" = 1 ] && [ ! -s "$dir/out" ] || wrong "not one line on stderr: $*"
    grep -qF -- "$text" "$dir/err" || wrong "no \"$text\": $*"
}
