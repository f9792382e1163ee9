#!/bin/bash
# Records the real program of `huepage-repro rocs` into a directory:
#   cg    the conjugate gradient solver of Eigen, on a random sparse symmetric matrix of 75,000 rows
#         (NAS Parallel Benchmarks, CG, class B) with 13 elements each
# Needs g++, the package libeigen3-dev, qemu-user, and a huepage (HUEPAGE, or the release build). The
# trace has 240 million records of the solver's iterations, after 600 million instructions of building the
# matrix and of the first of them; LIMIT and SKIP change that.
set -euo pipefail

cd "$(dirname "$0")/.."
out=${1:?give a directory for the traces}
huepage=${HUEPAGE:-target/release/huepage}
limit=${LIMIT:-240000000}
skip=${SKIP:-600000000}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! command -v g++ >/dev/null || [ ! -d /usr/include/eigen3 ]; then
    echo "SKIPPED cg: install the packages g++ and libeigen3-dev" >&2
    exit 1
fi
cat >"$work/cg.cpp" <<'END'
#include <Eigen/Sparse>
#include <cstdio>
#include <random>
#include <vector>

int main() {
    const int n = 75000;
    std::mt19937 random(1);
    std::vector<Eigen::Triplet<double>> all;
    for (int row = 0; row < n; row++) {
        all.emplace_back(row, row, 20.0);
        for (int i = 0; i < 6; i++) {
            const int column = random() % n;
            all.emplace_back(row, column, -0.5);
            all.emplace_back(column, row, -0.5);
        }
    }
    Eigen::SparseMatrix<double, Eigen::RowMajor> a(n, n);
    a.setFromTriplets(all.begin(), all.end());
    Eigen::VectorXd b = Eigen::VectorXd::Random(n);
    Eigen::ConjugateGradient<Eigen::SparseMatrix<double, Eigen::RowMajor>,
                             Eigen::Lower | Eigen::Upper> solver;
    solver.setTolerance(0).setMaxIterations(100);
    solver.compute(a);
    Eigen::VectorXd x = solver.solve(b);
    std::printf("%g\n", x.norm());
}
END
g++ -O2 -I/usr/include/eigen3 "$work/cg.cpp" -o "$work/cg"
rm -f "$out/cg.trace"
"$huepage" trace -q --skip "$skip" --limit "$limit" --stop-at-limit -o "$out/cg.trace" -- "$work/cg"
echo "cg=$out/cg.trace"
