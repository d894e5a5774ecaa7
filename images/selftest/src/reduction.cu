// A sum over all threads: shuffles in a warp, dynamic shared memory in a block, a second launch.
#include "selftest.cuh"

constexpr int warp = 32;
constexpr int block = 256;

__device__ unsigned sum_of_warp(unsigned value) {
    for (int distance = warp / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
}

__global__ void sum(const unsigned *values, int count, unsigned *sums, unsigned *odd) {
    extern __shared__ unsigned of_warps[];
    const int lane = threadIdx.x % warp;
    unsigned value = 0;
    unsigned odd_in_warp = 0;
    for (int first = blockIdx.x * blockDim.x; first < count; first += gridDim.x * blockDim.x) {
        const int i = first + threadIdx.x;
        const unsigned next = i < count ? values[i] : 0u;
        value += next;
        odd_in_warp += __popc(__ballot_sync(0xffffffffu, next & 1u));
    }
    value = sum_of_warp(value);
    if (lane == 0) {
        of_warps[threadIdx.x / warp] = value;
        of_warps[block / warp + threadIdx.x / warp] = odd_in_warp;
    }
    __syncthreads();
    if (threadIdx.x < warp) {
        const bool used = lane < block / warp;
        const unsigned total = sum_of_warp(used ? of_warps[lane] : 0u);
        const unsigned total_odd = sum_of_warp(used ? of_warps[block / warp + lane] : 0u);
        if (lane == 0) {
            sums[blockIdx.x] = total;
            odd[blockIdx.x] = total_odd;
        }
    }
}

static std::string reduction() {
    const int count = (1 << 22) + 17;
    const int blocks = 128;
    const size_t shared = 2 * block / warp * sizeof(unsigned);
    std::vector<unsigned> values(count);
    unsigned expected = 0;
    unsigned expected_odd = 0;
    for (int i = 0; i < count; ++i) {
        values[i] = static_cast<unsigned>(i) * 2654435761u;
        expected += values[i];
        expected_odd += values[i] & 1u;
    }
    const selftest::DeviceArray<unsigned> device(values), sums(blocks), odd(blocks), total(1), ignored(1);
    const selftest::DeviceArray<unsigned> total_odd(1);
    sum<<<blocks, block, shared>>>(device.get(), count, sums.get(), odd.get());
    sum<<<1, block, shared>>>(sums.get(), blocks, total.get(), ignored.get());
    sum<<<1, block, shared>>>(odd.get(), blocks, total_odd.get(), ignored.get());
    selftest::check_launch("sum");
    selftest::expect_equal(total.to_host(), {expected}, "sum");
    selftest::expect_equal(total_odd.to_host(), {expected_odd}, "count of odd values");
    return "sum of " + std::to_string(count) + " values";
}

int main() { return selftest::run("reduction", reduction); }
