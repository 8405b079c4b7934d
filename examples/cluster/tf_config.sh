#!/usr/bin/env bash
# One worker of a run over several machines. Start it on each of them, with its own number and the same list:
#
#   bash examples/cluster/tf_config.sh 0 host0:2222 host1:2222 -- \
#       python -m training.pretrain_mlstm --recipe nvidia-2048 --strategy multiworker --shards /shared/shards --run /shared/run
#
# Tested with two workers on one machine; on several machines: untested here.
set -u
if [ $# -lt 4 ]; then
    echo "usage: tf_config.sh NUMBER HOST:PORT... -- COMMAND" >&2
    exit 2
fi
number=$1
shift
workers=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    workers=$workers${workers:+, }\"$1\"
    shift
done
shift
export TF_CONFIG="{\"cluster\": {\"worker\": [$workers]}, \"task\": {\"type\": \"worker\", \"index\": $number}}"

for attempt in 1 2 3 4 5; do
    "$@"
    status=$?
    # 76: another worker was lost; above 128: this one was killed. The others start again as well.
    if [ $status -ne 76 ] && [ $status -le 128 ]; then
        exit $status
    fi
    echo "worker $number ended with status $status, attempt $attempt of 5" >&2
done
exit $status
