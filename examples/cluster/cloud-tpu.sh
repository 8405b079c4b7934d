#!/usr/bin/env bash
# One Cloud TPU VM with eight cores: make it, install lbzoo beside the TensorFlow that it comes with, train, delete it.
#
#   PROJECT=my-project ZONE=us-central1-a BUCKET=my-bucket bash examples/cluster/cloud-tpu.sh
#
# Untested here: there is no TPU. What could be shown is that the whole step compiles with static shapes.
set -euo pipefail
name=lbzoo-tpu
place=(--zone="$ZONE" --project="$PROJECT")
on_tpu() { gcloud compute tpus tpu-vm ssh "$name" "${place[@]}" --command="$1"; }

gcloud compute tpus tpu-vm create "$name" "${place[@]}" --accelerator-type=v3-8 --version=tpu-vm-tf-2.15.0-pjrt
trap 'gcloud compute tpus tpu-vm delete "$name" "${place[@]}" --quiet' EXIT
gcloud compute tpus tpu-vm scp --recurse . "$name": "${place[@]}"

# --no-deps: the image's own build of TensorFlow has to stay
on_tpu 'pip install --no-deps -e . && pip install "numpy<2" "pandas<3" "safetensors" "scikit-learn>=1.3" "tqdm" "huggingface-hub>=1,<3"'
on_tpu "gsutil -m cp -r gs://$BUCKET/shards ."
# bfloat16 is the TPU's own half precision and needs no loss scale; TPU_NAME=local is the TPU of this machine
on_tpu 'TPU_NAME=local python3 -m training.pretrain_mlstm --recipe nvidia-2048 --strategy tpu --set precision=mixed_bfloat16 --shards shards --run run --minutes 60 --export exported' || [ $? -eq 75 ]
# after 60 minutes that were too few there is no `exported` yet: a run goes on from the folder `run`
on_tpu "gsutil -m cp -r run \$(ls -d exported 2>/dev/null) gs://$BUCKET/"
