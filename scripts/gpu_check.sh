#!/bin/sh
# Verifies generation on this machine's GPU: builds llama-cpp-python with CUDA for this card only,
# runs a short matrix on the GPU and on the CPU, and measures speed. Takes less than ten minutes.
# Needs the CUDA toolkit (nvcc), a C++ compiler and Python 3.11 or newer.
#
#   scripts/gpu_check.sh [FOLDER]     FOLDER keeps the environment (default: a temporary one)
#
# Exit codes: 0 all commands succeeded and the GPU has the CPU's verdicts, 1 otherwise, 3 no GPU.
set -eu

if ! command -v nvidia-smi >/dev/null 2>&1 || ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  echo "gpu_check: this machine has no NVIDIA GPU; nothing was checked." >&2
  exit 3
fi
if ! command -v nvcc >/dev/null 2>&1; then
  echo "gpu_check: there is a GPU, but nvcc is missing; install the CUDA toolkit." >&2
  exit 3
fi

root=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$(mktemp -d)}
card=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d ' .')
nvidia-smi -L

python3 -m venv "$folder/venv"
. "$folder/venv/bin/activate"
cd "$root"
CMAKE_ARGS="-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=$card -DGGML_NATIVE=on" \
  CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) \
  pip install -q -c constraints.txt --no-binary llama-cpp-python -e .

for runtime in gpu cpu; do
  python -m pipeline run model=smollm2 runtime=$runtime 'builder=[fixed]' 'stages=[generate]' \
    engine.oracle=first results_dir="$folder/results" run.name=$runtime
done
# The verdicts must equal the CPU's; texts may differ where two tokens have almost equal logits.
code=0
python -m pipeline compare before.run=cpu after.run=gpu results_dir="$folder/results" || code=1

python scripts/bench_decode.py --device gpu --no-server --no-growth --repeats 3 --json || code=1
echo "gpu_check: $([ $code = 0 ] && echo passed || echo FAILED); results in $folder/results"
exit $code
