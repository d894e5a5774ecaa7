// Threads of many blocks that change the same words: add (integer, float), maximum, compare and swap.
#include "selftest.cuh"

constexpr int bins = 64;

struct Totals {
    unsigned largest;
    unsigned swapped;
    float added;
};

__global__ void count_bins(const unsigned *values, int count, unsigned *histogram, Totals *totals) {
    __shared__ unsigned of_block[bins];
    if (threadIdx.x < bins) {
        of_block[threadIdx.x] = 0;
    }
    __syncthreads();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        atomicAdd(&of_block[values[i] % bins], 1u);
        atomicMax(&totals->largest, values[i]);
        atomicAdd(&totals->added, 1.0f);
        unsigned seen = totals->swapped;
        unsigned expected;
        do {
            expected = seen;
            seen = atomicCAS(&totals->swapped, expected, expected + 3u);
        } while (seen != expected);
    }
    __syncthreads();
    if (threadIdx.x < bins) {
        atomicAdd(&histogram[threadIdx.x], of_block[threadIdx.x]);
    }
}

static std::string atomics() {
    const int count = 20000;
    const int block = 128;
    std::vector<unsigned> values(count), expected(bins);
    unsigned largest = 0;
    for (int i = 0; i < count; ++i) {
        values[i] = (static_cast<unsigned>(i) * 2654435761u) >> 3;
        largest = values[i] > largest ? values[i] : largest;
        ++expected[values[i] % bins];
    }
    const selftest::DeviceArray<unsigned> device(values);
    const selftest::DeviceArray<unsigned> histogram(std::vector<unsigned>(bins, 0u));
    const selftest::DeviceArray<Totals> totals(std::vector<Totals>{{0u, 0u, 0.0f}});
    count_bins<<<(count + block - 1) / block, block>>>(device.get(), count, histogram.get(), totals.get());
    selftest::check_launch("count_bins");
    selftest::expect_equal(histogram.to_host(), expected, "bin");
    const Totals found = totals.to_host()[0];
    selftest::expect_equal<unsigned>({found.largest, found.swapped}, {largest, 3u * count}, "total");
    selftest::expect_equal<float>({found.added}, {static_cast<float>(count)}, "float sum");
    return std::to_string(count) + " threads on shared words";
}

int main() { return selftest::run("atomics", atomics); }
