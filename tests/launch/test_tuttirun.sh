#!/usr/bin/env bash
# tuttirun from outside: exit statuses, prefixes, restarts, signals, what is printed last, log files,
# and that nothing is left running (looked up by process id).
set -u
run=$TUTTI_BIN/tuttirun
place=$TUTTI_BUILD/tests/place_print
. "$(dirname "$0")/../from_outside.sh"

runs() { [ -d "/proc/$1" ] && ! grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null; }
# gone FILE: the processes whose ids are in the file do not run (a zombie does not either).
gone() {
    local pid
    for pid in $(cat "$1"); do
        if runs "$pid"; then
            wrong "process $pid is left running: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
        fi
    done
}
# ... where nobody was left to wait for their end.
gone_soon() {
    local pid
    for pid in $(cat "$1"); do
        for _ in $(seq 1000); do
            runs "$pid" || break
            sleep 0.02
        done
    done
    gone "$1"
}
# await FILE LINES: until the file has that many lines.
await() {
    for _ in $(seq 3000); do
        [ "$(cat "$1" 2>/dev/null | wc -l)" -ge "$2" ] && return
        sleep 0.02
    done
    wrong "$1 does not get $2 lines"
}

# A job that goes well: status, prefixes, the environment.
try 0 "$run" -n 3 "$place" --twice
for k in 0 1 2; do out_has "^\[$k\] rank $k of 3 launcher tuttirun local $k of 3 ok$"; done
err_lines 0
try 0 "$run" --nproc_per_node=2 --env COLOUR=blue sh -c 'echo $RANK/$WORLD_SIZE/$LOCAL_RANK/$LOCAL_WORLD_SIZE/$COLOUR'
out_has '^\[1\] 1/2/1/2/blue$'
try 0 "$run" --no-prefix -n 2 "$place"
out_has '^rank 1 of 2'
# ... whose ports stay theirs in between, whether tuttirun chose it or was told.
try 0 "$run" "$place" --held
out_has '^\[0\] both ports are held$'
try 0 "$run" --master-port $((29900 + $$ % 50)) "$place" --held
# ... and a MASTER_PORT set anew by the program itself counts.
try 0 "$run" -n 2 sh -c "MASTER_PORT=$((29950 + $$ % 50)) exec $place"
out_has '^\[0\] rank 0 of 2'
# Two "hosts" that find each other through a master.
"$run" --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port $((29600 + $$ % 300)) -n 1 "$place" >"$dir/other" 2>&1 &
other=$!
try 0 "$run" --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port $((29600 + $$ % 300)) -n 1 "$place"
out_has '^\[0\] rank 0 of 2 .* local 0 of 1 ok$'
wait $other || wrong "the second host failed: $(cat "$dir/other")"

# Lines of several ranks are never torn: 3 ranks, 400 long lines each, in two writes a line.
try 0 "$run" -n 3 sh -c 'i=0; while [ $i -lt 400 ]; do printf "aaaaaaaaaaaaaaaaaaaaaaaaaaaa%s" $RANK; printf "bbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"; i=$((i+1)); done'
[ "$(grep -cE '^\[([0-2])\] a{28}\1b{28}$' "$dir/out")" = 1200 ] || wrong "torn lines"
try 0 "$run" printf 'no end of line'
out_has '^\[0\] no end of line$'

# A failure: its status, and its report last, with the rank's last lines.
try 7 "$run" -n 3 sh -c 'echo $$ >>'"$dir"'/fail; [ $RANK = 1 ] && { echo the reason >&2; exit 7; }; exec sleep 60'
tail -n 1 "$dir/err" | grep -qE '^tuttirun: rank 1 \(.*:[0-9]+\) exited with status 7; the others were ended$' || wrong "the failure is not last"
tail -n 2 "$dir/err" | head -n 1 | grep -q '^    the reason$' || wrong "not the rank's last lines"
gone "$dir/fail"
try 139 "$run" -n 2 sh -c '[ $RANK = 1 ] && kill -SEGV $$; exec sleep 60'
err_has 'rank 1 \(.*\) was killed by signal 11 \(Segmentation fault\)'

# SIGTERM is not enough for these, helpers in their groups and sessions neither.
try 3 timeout -s KILL 100 "$run" -n 2 bash -c 'trap "" TERM; sleep 600 & echo $! >>'"$dir"'/stay; setsid sleep 600 & echo $! >>'"$dir"'/stay; echo $$ >>'"$dir"'/stay
while [ "$(wc -l <'"$dir"'/stay)" -lt 6 ]; do sleep 0.02; done
[ $RANK = 0 ] && exit 3; while :; do sleep 0.05; done'
gone "$dir/stay"

# Helpers of a job that went well end with it.
try 0 "$run" -n 2 bash -c 'setsid sleep 600 & echo $! >>'"$dir"'/helpers; sleep 600 & echo $! >>'"$dir"'/helpers'
gone "$dir/helpers"

# Restarts: the count is told, the last failure counts.
try 0 "$run" -n 2 --max-restarts 2 sh -c 'echo $RANK try $TUTTI_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT; [ $TUTTI_RESTART_COUNT = 2 ]'
out_has '^\[1\] 1 try 2 2$'
err_has 'exited with status 1; restart 2 of 2'
try 5 "$run" -n 2 --max-restarts 1 sh -c 'exit 5'
try 0 "$run" -n 2 --max-restarts 1 sh -c '[ $TUTTI_RESTART_COUNT = 1 ] || exit 9; "$0"' "$place"
out_has 'rank 1 of 2 .* ok'

# Elastic: who fails does not end the others, unless nobody ends well.
try 0 "$run" -n 3 --elastic sh -c '[ $RANK = 1 ] && kill -KILL $$; [ $RANK = 2 ] && exit 4; while [ "$(grep -c "go on$" '"$dir"'/err)" -lt 2 ]; do sleep 0.05; done; echo lives'
out_has '^\[0\] lives$'
err_has '^tuttirun: rank 1 \([0-9]+\) was killed by signal 9 \(Killed\); [12] of 3 go on$'
err_has '^tuttirun: rank 2 \([0-9]+\) exited with status 4; [12] of 3 go on$'
try 5 "$run" -n 2 --elastic sh -c 'exit 5'
err_has 'exited with status 5; no rank ended well$'

# Signals go on to the ranks; the end is theirs to make.
for signal in USR1 TERM INT; do
    rm -f "$dir/up" "$dir/heard"
    # (A script's background jobs ignore SIGINT; give it back its meaning.)
    env --default-signal=INT "$run" -n 2 bash -c "trap 'echo \$RANK >>$dir/heard; exit 0' $signal; echo \$\$ >>$dir/up; while :; do sleep 0.02; done" >"$dir/out" 2>"$dir/err" &
    pid=$!
    await "$dir/up" 2
    kill -$signal $pid
    wait $pid
    status=$?
    [ $status = 0 ] || wrong "status $status after SIG$signal"
    [ "$(sort "$dir/heard" | tr -d '\n')" = 01 ] || wrong "not every rank heard SIG$signal"
    gone "$dir/up"
done
# Without a handler it is a death by that signal.
rm -f "$dir/up"
"$run" -n 2 bash -c "echo \$\$ >>$dir/up; exec sleep 60" >"$dir/out" 2>"$dir/err" &
pid=$!
await "$dir/up" 2
kill -TERM $pid
wait $pid
status=$?
[ $status = 143 ] || wrong "status $status after SIGTERM, not 143"
err_has 'was killed by signal 15 .* after the job was sent'
# tuttirun itself is killed: the ranks go with it.
rm -f "$dir/up"
"$run" -n 2 bash -c "echo \$\$ >>$dir/up; exec sleep 60" >"$dir/out" 2>"$dir/err" &
pid=$!
await "$dir/up" 2
kill -KILL $pid
wait $pid 2>/dev/null
gone_soon "$dir/up"

# Who reads our output goes away: the job ends, and soon.
timeout -s KILL 100 "$run" -n 2 bash -c "echo \$\$ >>$dir/piped; while echo line; do sleep 0.01; done" 2>"$dir/err" | head -n 3 >"$dir/out"
[ "$(wc -l <"$dir/out")" = 3 ] || wrong "head did not get its lines"
gone_soon "$dir/piped"

# Who reads our output stands still, with the pipe full: a line is not lost for that, ...
mkfifo "$dir/still"
exec 7<>"$dir/still"
full() {
    for _ in $(seq 3000); do
        dd if=/dev/zero of="$dir/still" bs=4096 count=1 oflag=nonblock conv=notrunc status=none 2>/dev/null || return
        sleep 0.02
    done
    wrong "the pipe does not get full"
}
rm -f "$dir/up"
"$run" -n 2 bash -c "echo \$\$ >>$dir/up; seq 20000; seq 20000 >&2" >"$dir/still" 2>&1 7<&- &
pid=$!
full
head -n 80000 <&7 | tr -d '\0' >"$dir/out"
wait $pid || wrong "status $? where the reader was slow"
for k in 0 1; do
    [ "$(grep -c "^\[$k\] [0-9]*$" "$dir/out")" = 40000 ] || wrong "lines are lost or torn"
done
gone "$dir/up"
# ... a rank's end is seen, ...
rm -f "$dir/up" "$dir/go"
"$run" -n 2 bash -c "echo \$\$ >>$dir/up; while [ \$RANK = 0 ]; do echo line; done
until [ -e $dir/go ]; do sleep 0.02; done; exit 7" >"$dir/still" 2>"$dir/err" 7<&- &
pid=$!
await "$dir/up" 2
full
touch "$dir/go"
gone_soon "$dir/up"
cat <&7 >"$dir/out" &
reader=$!
wait $pid
status=$?
kill $reader
[ $status = 7 ] || wrong "status $status where a rank failed, not 7"
# ... and the job can be ended.
rm -f "$dir/up"
"$run" -n 2 bash -c "echo \$\$ >>$dir/up; while :; do echo line; done" >"$dir/still" 2>"$dir/err" 7<&- &
pid=$!
await "$dir/up" 2
full
kill -TERM $pid
echo $pid >"$dir/run"
gone_soon "$dir/run"
kill -KILL $pid 2>/dev/null
wait $pid
status=$?
[ $status = 143 ] || wrong "status $status after SIGTERM with a reader that stands still, not 143"
gone_soon "$dir/up"
exec 7<&-

# Children that it has by an exec are not the ranks': they see its end, the ranks' orphans do not.
rm -f "$dir/log"
bash -c 'exec "$@" 2> >(cat >'"$dir"'/log; echo end >>'"$dir"'/end)' - "$run" -n 2 bash -c '
[ $RANK = 0 ] && exec sleep 600
setsid sleep 600 & echo $! >>'"$dir"'/left; exit 7'
status=$?
[ $status = 7 ] || wrong "status $status with a child of its own, not 7"
await "$dir/end" 1
tail -n 1 "$dir/log" | grep -q 'exited with status 7; the others were ended$' || wrong "who reads stderr was killed"
gone "$dir/left"

# Log files instead of output; failures are still told.
try 4 "$run" -n 2 --log-dir "$dir/logs/a" sh -c 'echo out $RANK; echo err $RANK >&2; [ $RANK = 0 ] || exit 4'
[ ! -s "$dir/out" ] || wrong "output beside the log files"
[ "$(cat "$dir/logs/a/rank_1.out" "$dir/logs/a/rank_0.err")" = "out 1
err 0" ] || wrong "wrong log files"
err_has '^    err 1$'

# Wrong command lines: one line each.
try 2 "$run"
err_lines 1
for arguments in "--foo true" "-n 0 true" "-n x true" "-n" "--nnodes 2 true" "--env X true" \
    "--nnodes 2 --standalone --master-addr h true" "--node-rank 1 true" "--master-port 0 true"; do
    try 2 "$run" $arguments
    err_lines 1
    err_has '^tuttirun: '
done
try 127 "$run" -n 2 /nowhere/program
err_lines 1
err_has 'cannot run /nowhere/program: No such file'
try 126 "$run" /
err_lines 1
try 0 "$run" --help
out_has '--nproc-per-node'
try 0 "$run" --version
out_has '^tuttirun [0-9]+\.[0-9]+\.[0-9]+$'
# A port that somebody listens on: by name.
python3 -c 'import socket, time
taken = socket.create_server(("127.0.0.1", 0))
print(taken.getsockname()[1], flush=True)
time.sleep(60)' >"$dir/holds" &
pid=$!
await "$dir/holds" 1
port=$(cat "$dir/holds")
try 1 "$run" --master-port $port true
err_lines 1
err_has "127.0.0.1:$port: the port is taken"
kill -TERM $pid
wait $pid

[ $failed = 0 ] && echo "tuttirun: all well"
exit $failed
