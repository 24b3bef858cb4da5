#!/usr/bin/env bash
# Puts what compiles and links candle's CUDA part into FOLDER: NVIDIA's compiler from PyPI (160 MB, no root, no GPU), and
# stand-ins for NVIDIA's libraries (stubs.py). Then `source FOLDER/env` and build. Status 77: PyPI or a tool cannot be had.
#
#   toolkit.sh FOLDER
#
# The compiler is that of CUDA 13.0. Its PTX is marked as that of CUDA 12.4, so that drivers from 12.4 on accept it:
# gpu/bundle.sh has the assembler of 12.4 confirm for every kernel that nothing newer is in it. candle's kernels for quantized
# models and mixtures of experts are left out: training uses none of them, and they take ten of eleven minutes.
set -euo pipefail
folder=$(realpath -m "${1:?the folder}")
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
for tool in python3 gcc ar unzip; do
    command -v "$tool" >/dev/null || { echo "SKIPPED: no $tool, so there is no compiler for CUDA" && exit 77; }
done

printf '%s --hash=sha256:%s\n' >"$folder/wheels.txt" \
    nvidia-cuda-nvcc==13.0.88 56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03 \
    nvidia-nvvm==13.0.88 c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0 \
    nvidia-cuda-crt==13.0.88 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4 \
    nvidia-cuda-runtime==13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548 \
    nvidia-cuda-cccl==13.0.85 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649 \
    nvidia-curand==10.4.0.35 1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc \
    nvidia-cuda-nvcc-cu12==12.4.131 e4c9a35435c3b0e36c6397c5696334c9ea6650e524736cbd1c5d345ea099bb04
if ! python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes -d "$folder/wheels" -r "$folder/wheels.txt" 2>"$folder/pip.log"; then
    cat "$folder/pip.log" >&2
    if grep -q 'DO NOT MATCH THE HASHES' "$folder/pip.log"; then exit 1; fi
    echo "SKIPPED: NVIDIA's wheels cannot be had, so there is no compiler for CUDA"
    exit 77
fi
for wheel in "$folder"/wheels/*.whl; do unzip -qo "$wheel" -d "$folder"; done
cuda=$folder/nvidia/cu13
chmod +x "$cuda"/bin/* "$cuda"/nvvm/bin/* "$folder/nvidia/cuda_nvcc/bin/ptxas"

python3 "$here/stubs.py" "$folder/home/lib"
# In front of the compiler's own folders, so the C++ library is linked in, too.
ln -sfn "$(g++ -print-file-name=libstdc++.a)" "$folder/home/lib/libstdc++.a"
ln -sfn "$cuda/include" "$folder/home/include"
mkdir -p "$folder/home/bin"
cat >"$folder/home/bin/nvcc" <<NVCC
#!/usr/bin/env bash
set -euo pipefail
arguments=("\$@") kind= out= source=
while [ \$# -gt 0 ]; do
    case \$1 in
        --ptx | -c) kind=\$1 ;;
        --output-directory | -o) out=\$2 && shift ;;
        *.cu) source=\$1 ;;
    esac
    shift
done
if [ "\$kind" = -c ]; then
    # Of functions for quantized models and mixtures of experts, only names: whoever calls one is told.
    if [ "\$(basename "\$source")" = moe_gguf.cu ]; then
        echo 'extern int puts(const char *); extern void abort(void);'
        sed -n 's/^ *pub fn \([a-z0-9_A-Z]*\)(.*/void \1(void) { puts("\1: left out of this build"); abort(); }/p' "\$(dirname "\$source")/../ffi.rs"
    fi | gcc -c -fPIC -x c - -o "\$out"
    exit
fi
"$cuda/bin/nvcc" "\${arguments[@]}"
[ "\$kind" != --ptx ] || sed -i 's/^\.version 9\.[0-9]\$/.version 8.4/' "\$out/\$(basename "\$source" .cu).ptx"
NVCC
chmod +x "$folder/home/bin/nvcc"

cat >"$folder/env" <<ENV
# Ampere (A100) and newer: the driver translates for the GPU that it finds.
export PATH=$folder/home/bin:\$PATH NVCC=$folder/home/bin/nvcc CUDA_HOME=$folder/home CUDA_COMPUTE_CAP=80 CUDARC_CUDA_VERSION=12040
export PTXAS_12_4=$folder/nvidia/cuda_nvcc/bin/ptxas
ENV
